"""Compiled: turns decisions into steps.

The decoder walks the ops in the order of first computations. What an op reads is brought to
its device on demand: it is there, is copied there, or is recomputed from what is there. After
every touch of a tensor an *interval* begins, which ends with the next op that must touch it; the
decisions say what is held during each interval, and what moves in the middle of one.
"""

# Compiled code has no generators, so loops stay loops.
# ruff: noqa: SIM110

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.compiled import entry, inlined
from tvm_xengine.solvers.indexed import NONE
from tvm_xengine.solvers.local_search.compiled.decisions import (
    BRING_ALONE,
    DROP,
    EVERYWHERE,
    NEVER,
    WAYS,
    Decisions,
)
from tvm_xengine.solvers.local_search.compiled.measure import makespan, measure_memory
from tvm_xengine.solvers.local_search.compiled.scratch import (
    COMPUTE,
    PLACE,
    STAYS,
    STEPS,
    TRANSFER,
    TRANSIENTS,
    Scratch,
)
from tvm_xengine.solvers.local_search.compiled.view import SearchView


@entry
def decode(g: SearchView, x: Decisions, w: Scratch) -> tuple[float, float]:
    """(objective, excess) of the decisions `x`; the decoded steps are left in `w`.

    The excess is 0 where every budget holds; otherwise it grows with the largest excess and
    with the number of steps beyond a budget, relative to the budgets. Both are infinite
    where the decisions cannot be carried out. All state is at home before the first step,
    whatever is decided: whether it fits there is for the caller to check, once.
    """
    infinite = (np.inf, np.inf)
    n_ops, touches = len(x.order), len(g.touch)
    w.counted[:] = 0
    w.value[0] = 0.0
    w.stay_of[:] = -1
    for t in range(len(g.tensor)):
        w.tensor[t].on = 0
        w.tensor[t].overwritten = 0
        w.tensor[t].interval = touches + t
        w.tensor[t].returned = 0
        w.tensor[t].made_last_on = -1
        if g.tensor[t].home >= 0:
            w.tensor[t].on = 1 << g.tensor[t].home
            _begin_stay(w, t, g.tensor[t].home, 0)
            w.stay[w.stay_of[t, g.tensor[t].home]].end = -1
    for t in range(len(g.tensor)):
        changed = x.keep[touches + t] != EVERYWHERE or x.push[touches + t] != 0
        if changed and not _open_interval(g, x, w, t, touches + t):
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
    excess = measure_memory(g, w)
    if g.by_makespan:
        return makespan(g, w), excess
    return w.value[0], excess


@inlined
def _first_run(g: SearchView, x: Decisions, w: Scratch, i: int, d: int) -> bool:
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        there = (w.tensor[g.read[k]].on >> d) & 1
        if not there and not _bring(g, x, w, g.read[k], d):
            return False
    for k in range(g.op[i].made_at, g.op[i + 1].made_at):
        state = g.tensor[g.made[k]].update_of
        if (
            state >= 0
            and g.tensor[state].home != d
            and not _bring(g, x, w, state, g.tensor[state].home)
        ):
            return False
    if not _compute(g, w, i, d):
        return False
    for k in range(g.op[i].made_at, g.op[i + 1].made_at):
        state = g.tensor[g.made[k]].update_of
        if state >= 0 and not _copy_along(g, w, g.made[k], d, g.tensor[state].home):
            return False
    if x.ahead[i] >= 0 and not _bring_ahead(g, x, w, x.ahead[i]):
        return False
    for k in range(w.counted[TRANSIENTS]):
        t = w.transient[k].tensor
        if w.tensor[t].returned < x.level[w.tensor[t].interval]:
            w.tensor[t].on &= ~(1 << w.transient[k].device)
    for k in range(g.op[i].touch_at, g.op[i + 1].touch_at):
        w.tensor[g.touch[k]].interval = k
        w.tensor[g.touch[k]].returned = 0
        changed = x.keep[k] != EVERYWHERE or x.push[k] != 0
        if changed and not _open_interval(g, x, w, g.touch[k], k):
            return False
    return True


@inlined
def _bring_ahead(g: SearchView, x: Decisions, w: Scratch, what: int) -> bool:
    """Bring a tensor somewhere, unless it is not yet made, lost, or overwritten there; or drop it."""
    t, d = what // WAYS // len(g.device), what // WAYS % len(g.device)
    if what % WAYS == DROP:
        _drop(g, w, t, w.tensor[t].on & ~(1 << d))
        return True
    if (w.tensor[t].overwritten >> d) & 1:
        return True
    i = g.tensor[t].producer
    if i >= 0 and x.position[i] > w.counted[PLACE]:
        return True
    if w.tensor[t].on == 0 and not (i >= 0 and g.op[i].recomputable):
        return True
    if not (w.tensor[t].on >> d) & 1 and not _bring(g, x, w, t, d):
        return False
    if what % WAYS == BRING_ALONE:
        w.tensor[t].on = 1 << d
        w.tensor[t].returned = NEVER  # it is not for another op that it came
    return True


@inlined
def _open_interval(g: SearchView, x: Decisions, w: Scratch, t: int, interval: int) -> bool:
    """Push and drop tensor t as its new interval says."""
    push = x.push[interval] & ~w.tensor[t].on & ~w.tensor[t].overwritten
    if push and w.tensor[t].on:
        for d in range(len(g.device)):
            if (push >> d) & 1 and not (w.tensor[t].on >> d) & 1:
                source = _nearest(g, w, t, d)
                if source >= 0 and not _copy_along(g, w, t, source, d):
                    return False
    w.tensor[t].returned = 0
    _drop(g, w, t, w.tensor[t].on & x.keep[interval])
    return True


@inlined
def _drop(g: SearchView, w: Scratch, t: int, left: int) -> None:
    """Hold tensor t on the devices `left` only; what cannot be made again is not dropped."""
    if left or (g.tensor[t].producer >= 0 and g.op[g.tensor[t].producer].recomputable):
        w.tensor[t].on = left


@inlined
def _bring(g: SearchView, x: Decisions, w: Scratch, tensor: int, device: int) -> bool:
    """Have a tensor on a device, by copies or by running its producer (and its inputs') again."""
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
            way = g.transfer[source, d, t].route_value
            if not (can_run and g.run[i, d].value < way and _reads_are_on(g, w, i, d)):
                if not _copy_along(g, w, t, source, d):
                    return False
                top -= 1
                continue
        if not can_run:
            return False
        at = d if source >= 0 or x.redevice[i] < 0 else x.redevice[i]
        if g.run[i, at].value == np.inf:
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


@inlined
def _reads_are_on(g: SearchView, w: Scratch, i: int, d: int) -> bool:
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        if not (w.tensor[g.read[k]].on >> d) & 1:
            return False
    return True


@inlined
def _nearest(g: SearchView, w: Scratch, t: int, d: int) -> int:
    """Device that holds t and from which d is reached most cheaply; -1 if there is none."""
    best, best_value = NONE, np.inf
    for e in range(len(g.device)):
        if (w.tensor[t].on >> e) & 1 and g.transfer[e, d, t].route_value < best_value:
            best, best_value = e, g.transfer[e, d, t].route_value
    return best


@inlined
def _begin_stay(w: Scratch, t: int, d: int, step: int) -> None:
    k = w.counted[STAYS]
    w.stay[k].tensor, w.stay[k].device = t, d
    w.stay[k].start, w.stay[k].end = step, step
    w.stay_of[t, d] = k
    w.counted[STAYS] = k + 1


@inlined
def _note_return(w: Scratch, t: int, d: int) -> None:
    """Record that t is on d, for as long as the level of its interval says."""
    if not (w.tensor[t].on >> d) & 1:
        w.tensor[t].on |= 1 << d
        w.tensor[t].returned += 1
        if w.counted[TRANSIENTS] < len(w.transient):
            k = w.counted[TRANSIENTS]
            w.transient[k].tensor, w.transient[k].device = t, d
            w.counted[TRANSIENTS] = k + 1


@inlined
def _compute(g: SearchView, w: Scratch, i: int, d: int) -> bool:
    step = w.counted[STEPS]
    if step >= len(w.step) - 2 or g.run[i, d].value == np.inf:
        return False
    _write(w, COMPUTE, i, d, d)
    w.value[0] += g.run[i, d].value
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        w.stay[w.stay_of[g.read[k], d]].end = step
    for k in range(g.op[i].made_at, g.op[i + 1].made_at):
        t = g.made[k]
        if g.tensor[t].update_of >= 0:
            _take_over(w, t, g.tensor[t].update_of, d)
        else:
            _begin_stay(w, t, d, step)
            _note_return(w, t, d)
        w.tensor[t].made_last_on = d
    return True


@inlined
def _write(w: Scratch, kind: int, item: int, src: int, dst: int) -> None:
    """Write the next step."""
    step = w.counted[STEPS]
    w.step[step].kind, w.step[step].item, w.step[step].src, w.step[step].dst = kind, item, src, dst
    w.step[step].place = w.counted[PLACE]
    w.counted[STEPS] = step + 1


@inlined
def _take_over(w: Scratch, t: int, state: int, d: int) -> None:
    """Record that update result t takes the place of `state` on d."""
    w.stay_of[t, d] = w.stay_of[state, d]
    w.stay_of[state, d] = -1
    w.tensor[state].on &= ~(1 << d)
    w.tensor[state].overwritten |= 1 << d
    w.tensor[t].on |= 1 << d


@inlined
def _copy_along(g: SearchView, w: Scratch, t: int, src: int, dst: int) -> bool:
    """Copy t along the cheapest route; an update result lands on its state at home."""
    while src != dst:
        to = g.transfer[src, dst, t].hop
        if to < 0:
            return False
        if not (w.tensor[t].on >> to) & 1:
            step = w.counted[STEPS]
            if step >= len(w.step) - 2 or (w.tensor[t].overwritten >> to) & 1:
                return False
            _write(w, TRANSFER, t, src, to)
            w.value[0] += g.transfer[src, to, t].value
            w.stay[w.stay_of[t, src]].end = step
            state = g.tensor[t].update_of
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


@inlined
def _deliver(g: SearchView, x: Decisions, w: Scratch) -> bool:
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


@inlined
def _survivor(g: SearchView, w: Scratch, t: int) -> int:
    """Device on which a result stays that may be anywhere: where it was made last, if it is held there."""
    last = w.tensor[t].made_last_on
    if last < 0 or not (w.tensor[t].on >> last) & 1:
        for d in range(len(g.device)):
            if (w.tensor[t].on >> d) & 1:
                last = d
        w.tensor[t].made_last_on = last
    return int(last)
