"""Compiled: turns decisions into steps, and measures their price, memory and makespan.

The decoder walks the ops in the order of first computations. What an op reads is brought to
its device on demand: it is there, is copied there, or is recomputed from what is there. After
every touch of a tensor a *gap* begins, which ends with the next op that must touch it; the
decisions say what is held during each gap.
"""

# Compiled code has no generators, so loops stay loops.
# ruff: noqa: SIM110

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.schedule import Schedule, with_frees
from tvm_xengine.solvers.compiled import entry, inlined, inner
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.search.arrays import (
    END_ANYWHERE,
    END_NOWHERE,
    Arrays,
    Floats,
    Ints,
    cheapest_routes,
)

EVERYWHERE = 255
"""Value of `Decisions.keep` under which a tensor stays wherever it is."""
NEVER = 99
"""Value of `Decisions.level` under which what is brought back for another op never stays."""


Records = NDArray[Any]


class Static(NamedTuple):
    """What the compiled code reads of a problem: arrays of records, few, so that it compiles fast.

    Attributes
    ----------
    op
        For each op and one past the last: where its reads, outputs and touches start in
        `read`, `made` and `touch`; whether it is recomputable.
    tensor
        For each tensor: bytes, producer, home, the state that it replaces, and the op that updates it.
    run
        Price, time and workspace of each op on each device, shape (ops, devices).
    link
        Price and time of a copy for each (source, destination), and the first hop and price
        of the cheapest route.
    device
        Budget, and whether it holds everything there is.
    end
        Tensors that must exist at the end, and where (-1: anywhere).
    """

    op: Records
    read: Ints
    made: Ints
    touch: Ints
    touch_op: Ints
    tensor: Records
    run: Records
    link: Records
    device: Records
    end: Records
    by_makespan: bool


class Decisions(NamedTuple):
    """A point of the search space.

    Attributes
    ----------
    order, position
        Op at each place of the order of first computations, and its inverse (-1 for ops
        that need not run).
    device, redevice
        Where each op runs first, and where again (-1: where the result is needed).
    keep, push, level
        For each gap. When it begins the tensor is copied to the devices in the mask `push`
        and dropped from those not in the mask `keep`. What is brought back for the sake of
        another op is dropped again, until it was brought back `level` times.
        Gap k < touches begins after touch k; gap touches + t before tensor t's first touch.
    ahead
        For each op a tensor that is brought somewhere right after its first run, as `moved` says,
        or -1. So a tensor can be made once more before what it is made from is overwritten, and
        can leave in the middle of a gap or return before the op that needs it.
    """

    order: Ints
    position: Ints
    device: Ints
    redevice: Ints
    keep: Ints
    push: Ints
    level: Ints
    ahead: Ints


class Work(NamedTuple):
    """Scratch memory of the decoder; after a decode it describes the decoded steps.

    Attributes
    ----------
    step
        ``kind`` 0: ``item`` is an op that runs on device ``src``; 1: ``item`` is a tensor that
        is copied from ``src`` to ``dst``. ``place``: place in the order that the step serves.
    stay
        Stays of tensors on devices: the bytes are live from step ``start`` to ``end``.
    hot
        Steps at which a budget is exceeded, or nearly used up where none is.
    counted
        Numbers of steps, stays, transients, hot steps; the place that is being served.
    tensor
        Per tensor: masks of the devices it is ``on`` and where it was ``overwritten``, the
        current ``gap``, how often it ``returned`` in it, where it was made last.
    stay_of
        Current stay of each tensor on each device, or -1.
    """

    step: Records
    stay: Records
    hot: Records
    counted: Ints
    tensor: Records
    stay_of: Ints
    transient: Records
    stack: Records
    live: Ints
    freed: Records
    freed_count: Ints
    stream_us: Floats
    price: Floats


STEPS, STAYS, TRANSIENTS, HOT, PLACE = range(5)
"""What `Work.counted` counts; PLACE is the place of the order that is being served."""


def static_of(arrays: Arrays, objective: Objective) -> Static:
    """What the compiled code needs to search for the best `objective`."""
    price = arrays.op_price(objective)
    fixed, per_byte = arrays.copy_price(objective)
    mean_bytes = float(arrays.size_bytes.mean())
    route_price, hop = cheapest_routes(fixed, per_byte, mean_bytes)
    end_tensor = np.flatnonzero(arrays.end_device != END_NOWHERE)
    most = arrays.size_bytes.sum() + arrays.workspace_bytes.max(axis=0)
    return Static(
        op=_records(
            read_at=arrays.read_ptr,
            made_at=arrays.made_ptr,
            touch_at=arrays.touch_ptr,
            recomputable=np.append(arrays.recomputable, False).astype(np.int64),
        ),
        read=arrays.read_tensor,
        made=arrays.made_tensor,
        touch=arrays.touch_tensor,
        touch_op=np.repeat(np.arange(arrays.n_ops), np.diff(arrays.touch_ptr)),
        tensor=_records(
            size=arrays.size_bytes,
            producer=arrays.producer,
            home=arrays.home,
            state_of=arrays.state_of,
            updater=arrays.updater,
        ),
        run=_records(price=price, us=arrays.compute_us, workspace=arrays.workspace_bytes),
        link=_records(
            fixed=fixed,
            per_byte=per_byte,
            us=arrays.copy_us,
            us_per_byte=arrays.copy_us_per_byte,
            hop=hop,
            route_price=route_price,
        ),
        device=_records(
            budget=arrays.budget_bytes, is_ample=(most <= arrays.budget_bytes).astype(np.int64)
        ),
        end=_records(tensor=end_tensor, device=arrays.end_device[end_tensor]),
        by_makespan=objective is Objective.MAKESPAN,
    )


def _records(**columns: NDArray[Any]) -> Records:
    """One array of records from columns of equal shape."""
    shape = next(iter(columns.values())).shape
    dtype = [(name, "f8" if column.dtype.kind == "f" else "i8") for name, column in columns.items()]
    result = np.zeros(shape, dtype=dtype)
    for name, column in columns.items():
        result[name] = column
    return result


def keep_everything(arrays: Arrays, device: Ints) -> Decisions:
    """Every needed op runs once, in the order of the graph, on its `device`; all is kept."""
    gaps = len(arrays.touch_tensor) + arrays.n_tensors
    position = np.full(arrays.n_ops, -1)
    position[arrays.needed_ops] = np.arange(len(arrays.needed_ops))
    return Decisions(
        order=arrays.needed_ops.copy(),
        position=position,
        device=device.astype(np.int64),
        redevice=np.full(arrays.n_ops, -1),
        keep=np.full(gaps, EVERYWHERE),
        push=np.zeros(gaps, dtype=np.int64),
        level=np.ones(gaps, dtype=np.int64),
        ahead=np.full(arrays.n_ops, -1),
    )


def drop_in_long_gaps(arrays: Arrays, device: Ints, longest: int) -> Decisions:
    """As `keep_everything`, but nothing that can be made again is held for more than `longest` ops."""
    x = keep_everything(arrays, device)
    next_touch = np.full(arrays.n_tensors, 2 * arrays.n_ops)
    for i in reversed(x.order.tolist()):
        for k in range(arrays.touch_ptr[i], arrays.touch_ptr[i + 1]):
            t = arrays.touch_tensor[k]
            wanted_at_end = arrays.end_device[t] != END_NOWHERE
            if next_touch[t] - x.position[i] > longest and not wanted_at_end:
                x.keep[k], x.level[k] = 0, NEVER
            next_touch[t] = x.position[i]
    return x


def workspace_of(arrays: Arrays) -> Work:
    """Scratch memory for decodes of a problem; steps are cut off at 8 x ops + 2000."""
    devices, tensors = arrays.n_devices, arrays.n_tensors
    steps = 8 * arrays.n_ops + 2000 + 4 * devices * tensors
    stays = steps * int(np.diff(arrays.made_ptr).max()) + tensors * (1 + devices)

    def integers(shape: int, names: str) -> Records:
        return np.zeros(shape, dtype=[(name, "i8") for name in names.split()])

    times = [("written_us", "f8"), ("touched_us", "f8")]
    whole = [(name, "i8") for name in ("tensor", "device", "start", "end", "next_ending")]
    return Work(
        step=integers(steps + 2, "kind item src dst place first_ending"),
        stay=np.zeros(stays, dtype=whole + times),
        hot=integers(steps * devices, "step device"),
        counted=np.zeros(5, dtype=np.int64),
        tensor=integers(tensors, "on overwritten gap returned made_last_on"),
        stay_of=np.zeros((tensors, devices), dtype=np.int64),
        transient=integers(tensors * devices, "tensor device"),
        stack=integers(len(arrays.touch_tensor) + tensors + 16, "tensor device at"),
        live=np.zeros((devices, steps + 2), dtype=np.int64),
        freed=np.zeros((devices, stays), dtype=[("us", "f8"), ("bytes", "i8")]),
        freed_count=np.zeros(devices, dtype=np.int64),
        stream_us=np.zeros(devices + devices * devices),
        price=np.zeros(1),
    )


@entry
def decode(g: Static, x: Decisions, w: Work) -> tuple[float, float]:
    """(objective, excess): what the decisions `x` come to; the steps are left in `w`.

    The excess is 0 where every budget holds; otherwise it grows with the largest excess and
    with the number of steps beyond a budget, relative to the budgets. Both are infinite
    where the decisions cannot be carried out. All state is at home before the first step,
    whatever is decided: whether it fits there is for the caller to check, once.
    """
    infinite = (np.inf, np.inf)
    n_ops, touches = len(x.order), len(g.touch)
    w.counted[:] = 0
    w.price[0] = 0.0
    w.stay_of[:] = -1
    for t in range(len(g.tensor)):
        w.tensor[t].on = 0
        w.tensor[t].overwritten = 0
        w.tensor[t].gap = touches + t
        w.tensor[t].returned = 0
        w.tensor[t].made_last_on = -1
        if g.tensor[t].home >= 0:
            w.tensor[t].on = 1 << g.tensor[t].home
            _begin_stay(w, t, g.tensor[t].home, 0)
            w.stay[w.stay_of[t, g.tensor[t].home]].end = -1
    for t in range(len(g.tensor)):
        changed = x.keep[touches + t] != EVERYWHERE or x.push[touches + t] != 0
        if changed and not _open_gap(g, x, w, t, touches + t):
            return infinite
    for place in range(n_ops):
        w.counted[PLACE] = place
        w.counted[TRANSIENTS] = 0
        i = x.order[place]
        if not _first_run(g, x, w, i, x.device[i]):
            return infinite
    w.counted[PLACE] = n_ops
    if not _deliver(g, x, w):
        return infinite
    excess = _measure_memory(g, w)
    if g.by_makespan:
        return _makespan(g, w), excess
    return w.price[0], excess


@inlined
def _first_run(g: Static, x: Decisions, w: Work, i: int, d: int) -> bool:
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        there = (w.tensor[g.read[k]].on >> d) & 1
        if not there and not _bring(g, x, w, g.read[k], d):
            return False
    for k in range(g.op[i].made_at, g.op[i + 1].made_at):
        state = g.tensor[g.made[k]].state_of
        if (
            state >= 0
            and g.tensor[state].home != d
            and not _bring(g, x, w, state, g.tensor[state].home)
        ):
            return False
    if not _compute(g, w, i, d):
        return False
    for k in range(g.op[i].made_at, g.op[i + 1].made_at):
        state = g.tensor[g.made[k]].state_of
        if state >= 0 and not _copy_along(g, w, g.made[k], d, g.tensor[state].home):
            return False
    if x.ahead[i] >= 0 and not _bring_ahead(g, x, w, x.ahead[i]):
        return False
    for k in range(w.counted[TRANSIENTS]):
        t = w.transient[k].tensor
        if w.tensor[t].returned < x.level[w.tensor[t].gap]:
            w.tensor[t].on &= ~(1 << w.transient[k].device)
    for k in range(g.op[i].touch_at, g.op[i + 1].touch_at):
        w.tensor[g.touch[k]].gap = k
        w.tensor[g.touch[k]].returned = 0
        changed = x.keep[k] != EVERYWHERE or x.push[k] != 0
        if changed and not _open_gap(g, x, w, g.touch[k], k):
            return False
    return True


@inlined
def moved(t: int, d: int, devices: int, is_alone: bool) -> int:
    """Value of `Decisions.ahead`: tensor t comes to device d, and stays nowhere else if alone."""
    return 2 * (t * devices + d) + (1 if is_alone else 0)


@inner
def _bring_ahead(g: Static, x: Decisions, w: Work, what: int) -> bool:
    """Bring a tensor somewhere, unless it is not yet made, lost, or overwritten there."""
    t, d = what // 2 // len(g.device), what // 2 % len(g.device)
    if (w.tensor[t].overwritten >> d) & 1:
        return True
    i = g.tensor[t].producer
    if i >= 0 and x.position[i] > w.counted[PLACE]:
        return True
    if w.tensor[t].on == 0 and not (i >= 0 and g.op[i].recomputable):
        return True
    if not (w.tensor[t].on >> d) & 1 and not _bring(g, x, w, t, d):
        return False
    if what % 2:
        w.tensor[t].on = 1 << d
        w.tensor[t].returned = NEVER  # it is not for another op that it came
    return True


@inner
def _open_gap(g: Static, x: Decisions, w: Work, t: int, gap: int) -> bool:
    """Push and drop tensor t as its new gap says; what cannot be made again is not dropped."""
    push = x.push[gap] & ~w.tensor[t].on & ~w.tensor[t].overwritten
    if push and w.tensor[t].on:
        for d in range(len(g.device)):
            if (push >> d) & 1 and not (w.tensor[t].on >> d) & 1:
                source = _nearest(g, w, t, d)
                if source >= 0 and not _copy_along(g, w, t, source, d):
                    return False
    w.tensor[t].returned = 0
    left = w.tensor[t].on & x.keep[gap]
    if left or (g.tensor[t].producer >= 0 and g.op[g.tensor[t].producer].recomputable):
        w.tensor[t].on = left
    return True


@inner
def _bring(g: Static, x: Decisions, w: Work, tensor: int, device: int) -> bool:
    """Have a tensor on a device, by copies or by running its producer (and theirs) again."""
    w.stack[0].tensor, w.stack[0].device, w.stack[0].at = tensor, device, -1
    top = 1
    while top:
        t, d, at = w.stack[top - 1].tensor, w.stack[top - 1].device, w.stack[top - 1].at
        if (w.tensor[t].on >> d) & 1:
            top -= 1
            continue
        i = g.tensor[t].producer
        if at >= 0:
            if (w.tensor[t].on >> at) & 1:
                return False  # made there, but there is no way to d
            if not _compute(g, w, i, at):
                return False
            continue
        if (w.tensor[t].overwritten >> d) & 1:
            return False
        can_run = i >= 0 and g.op[i].recomputable
        source = _nearest(g, w, t, d)
        if source >= 0:
            way = _route_us(g, t, source, d)
            if not (can_run and g.run[i, d].price < way and _reads_are_on(g, w, i, d)):
                if not _copy_along(g, w, t, source, d):
                    return False
                top -= 1
                continue
        if not can_run:
            return False
        at = d if source >= 0 or x.redevice[i] < 0 else x.redevice[i]
        if g.run[i, at].price == np.inf:
            at = x.device[i]
        w.stack[top - 1].at = at
        for k in range(g.op[i].read_at, g.op[i + 1].read_at):
            u = g.read[k]
            if not (w.tensor[u].on >> at) & 1:
                if top == len(w.stack):
                    return False
                w.stack[top].tensor, w.stack[top].device, w.stack[top].at = u, at, -1
                top += 1
    return True


@inner
def _reads_are_on(g: Static, w: Work, i: int, d: int) -> bool:
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        if not (w.tensor[g.read[k]].on >> d) & 1:
            return False
    return True


@inner
def _nearest(g: Static, w: Work, t: int, d: int) -> int:
    """Device that holds t and from which d is reached most cheaply; -1 if there is none."""
    best, best_price = -1, np.inf
    for e in range(len(g.device)):
        if (w.tensor[t].on >> e) & 1 and g.link[e, d].route_price < best_price:
            best, best_price = e, g.link[e, d].route_price
    return best


@inner
def _route_us(g: Static, t: int, src: int, dst: int) -> float:
    price = 0.0
    while src != dst:
        to = g.link[src, dst].hop
        price += g.link[src, to].fixed + g.link[src, to].per_byte * g.tensor[t].size
        src = to
    return price


@inlined
def _begin_stay(w: Work, t: int, d: int, step: int) -> None:
    k = w.counted[STAYS]
    w.stay[k].tensor, w.stay[k].device = t, d
    w.stay[k].start, w.stay[k].end = step, step
    w.stay_of[t, d] = k
    w.counted[STAYS] = k + 1


@inlined
def _note_return(w: Work, t: int, d: int) -> None:
    """t is on d now, for as long as the level of its gap says."""
    if not (w.tensor[t].on >> d) & 1:
        w.tensor[t].on |= 1 << d
        w.tensor[t].returned += 1
        if w.counted[TRANSIENTS] < len(w.transient):
            k = w.counted[TRANSIENTS]
            w.transient[k].tensor, w.transient[k].device = t, d
            w.counted[TRANSIENTS] = k + 1


@inlined
def _compute(g: Static, w: Work, i: int, d: int) -> bool:
    step = w.counted[STEPS]
    if step >= len(w.step) - 2 or g.run[i, d].price == np.inf:
        return False
    w.step[step].kind, w.step[step].item, w.step[step].src, w.step[step].dst = 0, i, d, 0
    w.step[step].place = w.counted[PLACE]
    w.counted[STEPS] = step + 1
    w.price[0] += g.run[i, d].price
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        w.stay[w.stay_of[g.read[k], d]].end = step
    for k in range(g.op[i].made_at, g.op[i + 1].made_at):
        t = g.made[k]
        if g.tensor[t].state_of >= 0:
            _take_over(w, t, g.tensor[t].state_of, d)
        else:
            _begin_stay(w, t, d, step)
            _note_return(w, t, d)
        w.tensor[t].made_last_on = d
    return True


@inner
def _take_over(w: Work, t: int, state: int, d: int) -> None:
    """Update result t is now where `state` was on d."""
    w.stay_of[t, d] = w.stay_of[state, d]
    w.stay_of[state, d] = -1
    w.tensor[state].on &= ~(1 << d)
    w.tensor[state].overwritten |= 1 << d
    w.tensor[t].on |= 1 << d


@inner
def _copy_along(g: Static, w: Work, t: int, src: int, dst: int) -> bool:
    """Copy t along the cheapest route; an update result lands on its state at home."""
    while src != dst:
        to = g.link[src, dst].hop
        if to < 0:
            return False
        if not (w.tensor[t].on >> to) & 1:
            step = w.counted[STEPS]
            if step >= len(w.step) - 2 or (w.tensor[t].overwritten >> to) & 1:
                return False
            w.step[step].kind, w.step[step].item, w.step[step].src, w.step[step].dst = 1, t, src, to
            w.step[step].place = w.counted[PLACE]
            w.counted[STEPS] = step + 1
            w.price[0] += g.link[src, to].fixed + g.link[src, to].per_byte * g.tensor[t].size
            w.stay[w.stay_of[t, src]].end = step
            state = g.tensor[t].state_of
            if state >= 0 and g.tensor[state].home == to:
                if w.stay_of[state, to] < 0 or not (w.tensor[state].on >> to) & 1:
                    return False
                _take_over(w, t, state, to)
                w.stay[w.stay_of[t, to]].end = step
            else:
                _begin_stay(w, t, to, step)
                _note_return(w, t, to)
            w.tensor[t].made_last_on = to
        src = to
    return True


@inner
def _deliver(g: Static, x: Decisions, w: Work) -> bool:
    """Bring home what must be there at the end, and make sure that results exist."""
    for k in range(len(g.end)):
        t, d = g.end[k].tensor, g.end[k].device
        if d >= 0 and not _bring(g, x, w, t, d):
            return False
        if d < 0 and not w.tensor[t].on and not _bring(g, x, w, t, x.device[g.tensor[t].producer]):
            return False
    for k in range(len(g.end)):
        t, d = g.end[k].tensor, g.end[k].device
        if d < 0:
            d = _survivor(g, w, t)
        w.stay[w.stay_of[t, d]].end = w.counted[STEPS]
    return True


@inner
def _survivor(g: Static, w: Work, t: int) -> int:
    """Device on which a result stays that may be anywhere: where it was made last, if it is held there."""
    last = w.tensor[t].made_last_on
    if last < 0 or not (w.tensor[t].on >> last) & 1:
        for d in range(len(g.device)):
            if (w.tensor[t].on >> d) & 1:
                last = d
        w.tensor[t].made_last_on = last
    return int(last)


@inner
def _measure_memory(g: Static, w: Work) -> float:
    """Live bytes during every step; returns the excess and leaves the hot steps in `w`."""
    steps = w.counted[STEPS]
    w.live[:, : steps + 2] = 0
    for k in range(w.counted[STAYS]):
        d = w.stay[k].device
        if not g.device[d].is_ample or g.by_makespan:
            size = g.tensor[w.stay[k].tensor].size
            w.live[d, w.stay[k].start] += size
            w.live[d, min(w.stay[k].end, steps) + 1] -= size
    excess = 0.0
    hot = 0
    for d in range(len(g.device)):
        if g.device[d].is_ample and not g.by_makespan:
            continue
        budget = g.device[d].budget
        running, worst, beyond = 0, 0, 0.0
        for s in range(steps):
            running += w.live[d, s]
            live = running
            if w.step[s].kind == 0 and w.step[s].src == d:
                live += g.run[w.step[s].item, d].workspace
            w.live[d, s] = live
            if live > budget:
                if beyond == 0.0 and excess == 0.0:
                    hot = 0  # only what exceeds a budget is hot from here on
                beyond += live - budget
                worst = max(worst, live - budget)
                w.hot[hot].step, w.hot[hot].device = s, d
                hot += 1
            elif beyond == 0.0 and excess == 0.0 and live > 0.95 * budget:
                w.hot[hot].step, w.hot[hot].device = s, d
                hot += 1
        excess += (worst + beyond / max(1, len(g.tensor))) / budget
    w.counted[HOT] = hot
    return excess


@inner
def _makespan(g: Static, w: Work) -> float:
    """End of the last step on the overlapped timeline, by the referee's rule."""
    steps, devices = w.counted[STEPS], len(g.device)
    for s in range(steps):
        w.step[s].first_ending = -1
    for k in range(w.counted[STAYS]):
        w.stay[k].written_us = 0.0
        w.stay[k].touched_us = 0.0
        if 0 <= w.stay[k].end < steps:
            w.stay[k].next_ending = w.step[w.stay[k].end].first_ending
            w.step[w.stay[k].end].first_ending = k
    w.stream_us[:] = 0.0
    w.freed_count[:] = 0
    w.stay_of[:] = -1
    begun = 0
    for t in range(len(g.tensor)):
        if g.tensor[t].home >= 0:
            w.stay_of[t, g.tensor[t].home] = begun
            begun += 1
    last = 0.0
    for s in range(steps):
        start, allocates = 0.0, True
        if w.step[s].kind == 0:
            i, d = w.step[s].item, w.step[s].src
            stream, duration = d, g.run[i, d].us
            start = w.stream_us[stream]
            for k in range(g.op[i].read_at, g.op[i + 1].read_at):
                start = max(start, w.stay[w.stay_of[g.read[k], d]].written_us)
            for k in range(g.op[i].made_at, g.op[i + 1].made_at):
                state = g.tensor[g.made[k]].state_of
                if state >= 0:
                    start = max(start, w.stay[w.stay_of[state, d]].touched_us)
        else:
            i, src, d = w.step[s].item, w.step[s].src, w.step[s].dst
            stream = devices + src * devices + d
            duration = g.link[src, d].us + g.link[src, d].us_per_byte * g.tensor[i].size
            start = max(w.stream_us[stream], w.stay[w.stay_of[i, src]].written_us)
            state = g.tensor[i].state_of
            if state >= 0 and g.tensor[state].home == d:
                allocates = False
                start = max(start, w.stay[w.stay_of[state, d]].touched_us)
        if allocates:
            start = max(start, _memory_ready(w, d, g.device[d].budget - w.live[d, s], start))
        end = start + duration
        w.stream_us[stream] = end
        last = max(last, end)
        if w.step[s].kind == 0:
            for k in range(g.op[i].read_at, g.op[i + 1].read_at):
                stay = w.stay_of[g.read[k], d]
                w.stay[stay].touched_us = max(w.stay[stay].touched_us, end)
            for k in range(g.op[i].made_at, g.op[i + 1].made_at):
                t = g.made[k]
                if g.tensor[t].state_of >= 0:
                    w.stay_of[t, d] = w.stay_of[g.tensor[t].state_of, d]
                else:
                    w.stay_of[t, d] = begun
                    begun += 1
                w.stay[w.stay_of[t, d]].written_us = end
                w.stay[w.stay_of[t, d]].touched_us = end
        else:
            stay = w.stay_of[i, src]
            w.stay[stay].touched_us = max(w.stay[stay].touched_us, end)
            if allocates:
                w.stay_of[i, d] = begun
                begun += 1
            else:
                w.stay_of[i, d] = w.stay_of[g.tensor[i].state_of, d]
            w.stay[w.stay_of[i, d]].written_us = end
            w.stay[w.stay_of[i, d]].touched_us = end
        k = w.step[s].first_ending
        while k >= 0:
            _note_freed(w, w.stay[k].device, w.stay[k].touched_us, g.tensor[w.stay[k].tensor].size)
            k = w.stay[k].next_ending
    return last


@inner
def _note_freed(w: Work, d: int, finished: float, size: int) -> None:
    """Insert into the frees of device d, which are sorted by time."""
    k = w.freed_count[d]
    while k > 0 and w.freed[d, k - 1].us > finished:
        w.freed[d, k].us = w.freed[d, k - 1].us
        w.freed[d, k].bytes = w.freed[d, k - 1].bytes
        k -= 1
    w.freed[d, k].us, w.freed[d, k].bytes = finished, size
    w.freed_count[d] += 1


@inner
def _memory_ready(w: Work, d: int, room: int, after: float) -> float:
    """Time from which the frees that have not finished fit into `room`, if later than `after`."""
    pending = 0
    k = w.freed_count[d] - 1
    while k >= 0 and w.freed[d, k].us > after:
        pending += w.freed[d, k].bytes
        if pending > room:
            return float(w.freed[d, k].us)
        k -= 1
    return after


def schedule_left_in(arrays: Arrays, w: Work) -> Schedule:
    """The schedule of the last decode."""
    graph, devices = arrays.problem.graph, arrays.problem.platform.devices
    step = w.step[: int(w.counted[STEPS])]
    rows = np.stack([step["item"], step["src"], step["dst"]], axis=1).tolist()
    steps = arrays.steps(step["kind"].tolist(), [(a, b, c) for a, b, c in rows])
    survivors = {
        graph.bases[t].name: devices[int(w.tensor["made_last_on"][t])].name
        for t in np.flatnonzero(arrays.end_device == END_ANYWHERE).tolist()
        if w.tensor["made_last_on"][t] >= 0
    }
    return with_frees(arrays.problem, steps, survivors=survivors)


def copied(x: Decisions) -> Decisions:
    """Decisions that can be changed without changing `x`."""
    return Decisions(*(field.copy() for field in x))
