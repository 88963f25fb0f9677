"""Reads decisions off a solution of the moment relaxation, which knows what the whole step needs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import Free, Schedule, with_frees
from tvm_xengine.scheduling.simulate import live_bytes
from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.local_search.arrays import Arrays, Floats, Ints, arrays_of
from tvm_xengine.solvers.local_search.decisions import (
    EVERYWHERE,
    NEVER,
    Decisions,
    copied,
    keep_everything,
)
from tvm_xengine.solvers.local_search.decoder import decode
from tvm_xengine.solvers.local_search.encode import decisions_of
from tvm_xengine.solvers.local_search.static import static_of
from tvm_xengine.solvers.local_search.work import STEPS, Work, schedule_left_in, workspace_of
from tvm_xengine.solvers.relaxation.decode import CannotCarryOutError, decode_moments
from tvm_xengine.solvers.relaxation.encode import encode_moments
from tvm_xengine.solvers.relaxation.time_points import MomentModel, values_of
from tvm_xengine.solvers.result import Objective

_logger = logging.getLogger(__name__)

_Bits = NDArray[np.int64]
_MOST_HINTS = 2
_MOST_REPAIRS = 200
"""So many gaps are held, one after the other, to carry out a solution that cannot be as it is."""


def decisions_of_moments(
    arrays: Arrays,
    model: MomentModel,
    x: NDArray[np.float64],
    *,
    holds_what_returns: bool = False,
    order: Sequence[int] | None = None,
    near: tuple[Decisions, NDArray[np.float64]] | None = None,
) -> Decisions:
    """Decisions that follow the solution `x` of a relaxation as far as it says anything.

    Ops run in the order of their periods and, within a period, of `order`, as far as their
    prerequisites allow, each where it first runs in the solution; an update waits for the end
    of its period where what reads the old state is repeated in it. A tensor is held through a
    gap on the devices that keep it at every moment in the gap, and dropped where there is none.
    Gaps without a moment and neglected tensors, of which the relaxation says nothing, are held.

    Parameters
    ----------
    holds_what_returns
        Hold all through the gap, too, what the solution drops and brings back before the gap
        ends. It may do so ahead of an update after which that is impossible, which decisions
        cannot express.
    order
        Of all ops of the model; by default that of the graph.
    near
        Decisions, and the solution of `model` that they project to. Their order is kept, and
        what `x` has in common with that solution is decided as there.
    """
    indexed = model.indexed
    graph = arrays.problem.graph
    op_of = np.array([graph.op_index[name] for name in indexed.op_names])
    base_of = {tensor.name: t for t, tensor in enumerate(graph.bases)}
    tensor_of = [base_of[name] for name in indexed.tensor_names]

    moments = model.moments(x)
    period, device = _first_runs(model, x)
    device = _settled(model, device)
    if near is None:
        placed = np.zeros(arrays.n_ops, dtype=np.int64)
        placed[op_of] = device
        result = keep_everything(arrays, placed)
        comes_last = _updates_to_delay(model, x, period)
        comes_last[moments] = 2
        place = np.arange(len(op_of))
        if order is not None:
            place[list(order)] = np.arange(len(op_of))
        result.order[:] = _in_feasible_order(arrays, op_of, period, comes_last, place)
        result.position[result.order] = np.arange(len(result.order))
    else:
        result = copied(near[0])
        moved = device != _settled(model, _first_runs(model, near[1])[1])
        result.device[op_of[moved]] = device[moved]

    place = result.position[op_of]
    moment_place = place[moments]
    kept = _kept_bits(model, x)
    arriving = _arrivals(model, x)
    kept_near = _kept_bits(model, near[1]) if near is not None else np.full_like(kept, -1)
    touches: list[list[tuple[int, int]]] = [[] for _ in indexed.tensor_names]
    is_told = _told_tensors(model)
    index_of = {t: j for j, t in enumerate(tensor_of) if is_told[j]}
    for i in op_of.tolist():
        for k in range(arrays.touch_ptr[i], arrays.touch_ptr[i + 1]):
            j = index_of.get(int(arrays.touch_tensor[k]))
            if j is not None:
                touches[j].append((int(result.position[i]), k))
    for j, own in enumerate(touches):
        own.sort()
        if arrays.home[tensor_of[j]] >= 0 and is_told[j]:
            own.insert(0, (-1, len(arrays.touch_tensor) + tensor_of[j]))
        for n, (begin, gap) in enumerate(own):
            end = own[n + 1][0] if n + 1 < len(own) else len(result.order)
            inside = np.flatnonzero((moment_place > begin) & (moment_place < end))
            bits = kept[inside, j]
            returns = len(inside) and np.bitwise_and.reduce(bits) == 0 and bits[-1] != 0
            differs = (bits != kept_near[inside, j]).any()
            if differs and not (returns and holds_what_returns):
                arrivals = arriving[inside[:1].sum() : inside[-1:].sum() + 1, j]
                _decide(result, gap, bits, arrivals, 1 << _made_on(arrays, result, gap))
    return result


def _in_feasible_order(
    arrays: Arrays, ops: Ints, period: _Bits, comes_last: _Bits, place: Ints
) -> list[int]:
    """`ops` by period, rank within it and place, each after its prerequisites.

    A fractional solution, or an update that waits, may ask for another order; the moves of the
    search rely on it.
    """
    rank = {
        i: (*ranks, i)
        for i, *ranks in zip(
            ops.tolist(), period.tolist(), comes_last.tolist(), place.tolist(), strict=True
        )
    }
    missing = {i: {j for j in arrays.prerequisites[i] if j in rank} for i in rank}
    ready = [rank[i] for i, before in missing.items() if not before]
    heapify(ready)
    order: list[int] = []
    while ready:
        i = heappop(ready)[-1]
        order.append(i)
        for j in rank.keys() & arrays.dependents[i]:
            missing[j].remove(i)
            if not missing[j]:
                heappush(ready, rank[j])
    return order


def _made_on(arrays: Arrays, x: Decisions, gap: int) -> int:
    """The device on which the touch before a gap finds or leaves the tensor."""
    if gap >= len(arrays.touch_tensor):
        return int(arrays.home[gap - len(arrays.touch_tensor)])
    op = int(np.searchsorted(arrays.touch_ptr, gap, side="right")) - 1
    return int(x.device[op])


def _first_runs(model: MomentModel, x: NDArray[np.float64]) -> tuple[_Bits, _Bits]:
    """Period and device of each op's first run."""
    count = model.indexed.op_count
    period, device = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    moment_of = {op: k for k, op in enumerate(model.moments(x).tolist())}
    for i in range(count):
        if i in moment_of:
            period[i] = moment_of[i]
            device[i] = int(values_of(model.at[period[i], :, i], x).argmax())
            continue
        for k in range(model.periods.earliest[i], model.periods.latest[i] + 1):
            values = values_of(model.run[k, :, i], x)
            period[i], device[i] = k, int(values.argmax())
            if values.max() > 0.5:
                break
    return period, device


def _told_tensors(model: MomentModel) -> list[bool]:
    """Whether the relaxation has columns for each tensor."""
    return [bool((model.keep[:, :, j] >= 0).any()) for j in range(model.keep.shape[2])]


def _settled(model: MomentModel, device: _Bits) -> _Bits:
    """Ops that touch neglected tensors only, which the solution may put anywhere, near their inputs."""
    indexed, is_told, result = model.indexed, _told_tensors(model), device.copy()
    for i, (reads, makes) in enumerate(zip(indexed.reads, indexed.makes, strict=True)):
        if not reads or any(is_told[j] for j in (*reads, *makes)):
            continue
        sources = [
            int(indexed.home[j] if indexed.producer[j] < 0 else result[indexed.producer[j]])
            for j in reads
        ]
        near = max(sources, key=sources.count)
        if indexed.can_run[i, near]:
            result[i] = near
    return result


def _updates_to_delay(model: MomentModel, x: NDArray[np.float64], period: _Bits) -> _Bits:
    """1 for updates in whose period a reader of the old state is repeated, else 0, shape (n,)."""
    indexed = model.indexed
    result = np.zeros(indexed.op_count, dtype=np.int64)
    for w in np.flatnonzero(indexed.updated_by >= 0).tolist():
        u = int(indexed.updated_by[w])
        for i in indexed.consumers[w]:
            if i != u and period[i] < period[u]:
                result[u] |= int(values_of(model.run[period[u], :, i], x).max() > 0.5)
    return result


def _kept_bits(model: MomentModel, x: NDArray[np.float64]) -> _Bits:
    """Devices that keep each tensor at each moment, as bits, shape (K + 1, J)."""
    is_kept = values_of(model.keep, x) > 0.5
    weights = 1 << np.arange(is_kept.shape[1])
    return np.asarray((is_kept * weights[None, :, None]).sum(axis=1), np.int64)


def _arrivals(model: MomentModel, x: NDArray[np.float64]) -> _Bits:
    """On how many devices each tensor is made or brought in each period, shape (K + 1, J)."""
    producer = model.indexed.producer
    runs = (values_of(model.run, x) > 0.5).sum(axis=1)
    copies = (values_of(model.copy, x) > 0.5).sum(axis=1)
    return np.asarray(copies + np.where(producer >= 0, runs[:, producer], 0), np.int64)


def _decide(result: Decisions, gap: int, kept: _Bits, arrivals: _Bits, here: int) -> None:
    """Set the decision of a gap at whose moments the devices `kept` hold what is on `here`.

    `arrivals` counts what is brought back in the period before each of the moments: all but
    the last time it is dropped again, and then, too, if not kept at the last moment.
    """
    throughout = int(np.bitwise_and.reduce(kept))
    is_more = (kept & ~throughout) != 0
    last_stay = len(kept) - int(np.argmin(is_more[::-1])) if not is_more.all() else 0
    result.level[gap] = max(1, arrivals[: last_stay + 1].sum()) if is_more[-1] else NEVER
    if throughout == here:
        result.push[gap], result.keep[gap] = 0, EVERYWHERE
    else:
        result.push[gap], result.keep[gap] = throughout, throughout


class Guide:
    """Carries out solutions of relaxations, and hands the decisions on to a search.

    Parameters
    ----------
    on_schedule
        Called with every schedule within the budgets that a solution leads to.
    best_schedule
        Gives the best schedule so far, if any. Solutions for every order leave open what comes
        first within a period: they are carried out in its order and in that of the graph, in turn.
    """

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        on_schedule: Callable[[Schedule], None],
        best_schedule: Callable[[], Schedule | None] = lambda: None,
    ) -> None:
        self._arrays = arrays_of(problem)
        self._static = static_of(self._arrays, objective)
        self._work = workspace_of(self._arrays)
        self._on_schedule = on_schedule
        self._best_schedule = best_schedule
        self._is_turn_of_graph = True
        self._hints: deque[Decisions] = deque(maxlen=_MOST_HINTS)
        self._proposed: tuple[Schedule, set[int]] | None = None

    def take(
        self, model: MomentModel, x: NDArray[np.float64], near: Schedule | None = None
    ) -> Floats | None:
        """Share of a budget that the solution asks for around each op's first run, shape (n,).

        None where it cannot be carried out. What the solution has in common with the schedule
        `near`, which has the order of first runs of `model`, is done as there.
        """
        order = self._order(model.indexed, near)
        exact = self._carry_out_exactly(model, x, order, is_proposal=near is None)
        arrays = self._arrays
        projected = encode_moments(model, near) if near is not None else None
        base = None
        if near is not None and projected is not None:
            base = decisions_of(arrays, near), projected
        for holds in (False, True):
            decisions = decisions_of_moments(
                arrays, model, x, holds_what_returns=holds, order=order, near=base
            )
            value, excess = self._carried_out(decisions)
            if np.isfinite(value):
                break
        else:
            return exact
        if excess == 0.0:
            self._on_schedule(schedule_left_in(arrays, self._work))
        self._hints.append(decisions)
        if exact is not None:
            return exact
        graph = arrays.problem.graph
        pressure = _pressure_of_places(arrays, self._work, len(decisions.order))
        places = decisions.position[[graph.op_index[name] for name in model.indexed.op_names]]
        return pressure[places]

    def _order(self, indexed: IndexedProblem, near: Schedule | None) -> Sequence[int]:
        """That of `near`; without it in turn that of the best schedule and that of the graph."""
        if near is None:
            self._is_turn_of_graph = not self._is_turn_of_graph
            near = None if self._is_turn_of_graph else self._best_schedule()
        return range(indexed.op_count) if near is None else indexed.first_runs(near)

    def _carry_out_exactly(
        self,
        model: MomentModel,
        x: NDArray[np.float64],
        order: Sequence[int],
        *,
        is_proposal: bool,
    ) -> Floats | None:
        """Follow the solution to the letter; the share of a budget asked for around first runs."""
        indexed, problem = model.indexed, self._arrays.problem
        try:
            written = decode_moments(model, x, order)
            schedule = with_frees(problem, [step for step, _ in written])
            live = live_bytes(problem, schedule, trace_residency(problem, schedule))
        except (CannotCarryOutError, InvalidScheduleError) as error:
            _logger.debug("a solution of a relaxation is not carried out exactly: %r", error)
            return None
        asked = np.max(
            [np.array(live[d.name]) / max(1, d.budget_bytes) for d in problem.platform.devices],
            axis=0,
        )
        is_real = [not isinstance(step, Free) for step in schedule.steps]
        pressure = np.zeros(indexed.op_count)
        np.maximum.at(pressure, [op for _, op in written], asked[is_real])
        if pressure.max() <= 1.0:
            self._on_schedule(schedule)
        elif is_proposal:
            self._proposed = schedule, set(model.moments(x).tolist())
        return pressure

    def _carried_out(self, x: Decisions) -> tuple[float, float]:
        """What `x` comes to, after holding all that could not be brought back otherwise."""
        value, excess = decode(self._static, x, self._work)
        for _ in range(_MOST_REPAIRS):
            missing = int(self._work.stack["tensor"][0])
            gap = int(self._work.tensor["gap"][missing])
            if np.isfinite(value) or x.keep[gap] == EVERYWHERE:
                break
            x.keep[gap], x.push[gap], x.level[gap] = EVERYWHERE, 0, 1
            value, excess = decode(self._static, x, self._work)
        return value, excess

    def next_hint(self) -> Decisions | None:
        """The decisions handed over last, once."""
        try:
            return self._hints.pop()
        except IndexError:
            return None

    def proposed(self) -> tuple[Schedule, set[int]] | None:
        """What the last solution led to if it fits no budget, and its moments; once."""
        found, self._proposed = self._proposed, None
        return found

    @property
    def has_hint(self) -> bool:
        """Whether `next_hint` has something."""
        return bool(self._hints)


def _pressure_of_places(arrays: Arrays, work: Work, places: int) -> Floats:
    """How much of a budget is asked for while each place of the order is served, in the last decode.

    The largest over the devices of live bytes / budget, shape (places,).
    """
    steps = int(work.counted[STEPS])
    pressure = np.zeros(places + 1)
    at = work.step["place"][:steps]
    for d in range(arrays.n_devices):
        np.maximum.at(pressure, at, work.live[d, :steps] / max(1, int(arrays.budget_bytes[d])))
    return pressure[:places]
