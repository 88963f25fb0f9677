"""Reads decisions of the search off a solution of a time-point relaxation."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.indexed import IndexedProblem, Ints
from tvm_xengine.solvers.local_search.compiled.decisions import (
    EVERYWHERE,
    NEVER,
    Decisions,
    copied,
    keep_all_decisions,
)
from tvm_xengine.solvers.local_search.encode import touches_of_first_runs
from tvm_xengine.solvers.relaxation.time_points import TimePointModel, values_of

_Bits = NDArray[np.int64]
_NO_PLACE = -2  # of a time point that is no op's first run: before everything, state included


def decisions_of_time_points(
    model: TimePointModel,
    x: NDArray[np.float64],
    *,
    holds_what_returns: bool = False,
    order: Sequence[int] | None = None,
    near: tuple[Decisions, NDArray[np.float64]] | None = None,
) -> Decisions:
    """Decisions that follow the solution `x` of a relaxation as far as it determines them.

    Ops run in the order of their periods and, within a period, of `order`, as far as their
    predecessors allow, each where it first runs in the solution; an update waits for the end
    of its period where what reads the old state is repeated in it. A tensor is held through a
    use interval on the devices that keep it at every time point within, and dropped where there is none.
    Intervals without a time point and neglected tensors, of which the relaxation says nothing, are held.

    Parameters
    ----------
    holds_what_returns
        Hold all through a use interval, too, what the solution drops and brings back before it
        ends. It may do so ahead of an update after which that is impossible, which decisions
        cannot express.
    order
        Of all ops of the model; by default that of the graph.
    near
        Decisions, and the solution of `model` that they project to. Their order is kept, and
        what `x` has in common with that solution is decided as there.
    """
    indexed = model.indexed
    time_points = model.time_points(x)
    period, device = _first_runs(model, x)
    device = _settled(model, device)
    if near is None:
        result = keep_all_decisions(indexed, device)
        rank = _updates_to_delay(model, x, period)
        rank[time_points[time_points >= 0]] = 2
        place = np.arange(indexed.op_count)
        if order is not None:
            place[list(order)] = np.arange(indexed.op_count)
        result.order[:] = _in_feasible_order(indexed, period, rank, place)
        result.position[result.order] = np.arange(indexed.op_count)
    else:
        result = copied(near[0])
        is_moved = device != _settled(model, _first_runs(model, near[1])[1])
        result.device[is_moved] = device[is_moved]

    place_of_time_point = np.where(time_points >= 0, result.position[time_points], _NO_PLACE)
    kept = _kept_bits(model, x)
    arriving = _arrivals(model, x)
    kept_near = _kept_bits(model, near[1]) if near is not None else np.full_like(kept, -1)
    is_told = _told_tensors(model)
    first_runs = ((i, at) for at, i in enumerate(result.order.tolist()))
    for j, own in enumerate(touches_of_first_runs(indexed, first_runs)):
        if not is_told[j]:
            continue
        for k, (begin, interval) in enumerate(own):
            end = own[k + 1][0] if k + 1 < len(own) else indexed.op_count
            inside = np.flatnonzero((place_of_time_point > begin) & (place_of_time_point < end))
            bits = kept[inside, j]
            returns = len(inside) and np.bitwise_and.reduce(bits) == 0 and bits[-1] != 0
            differs = (bits != kept_near[inside, j]).any()
            if differs and not (returns and holds_what_returns):
                arrivals = arriving[inside[:1].sum() : inside[-1:].sum() + 1, j]
                here = 1 << _made_on(indexed, result, interval)
                _decide(result, interval, bits, arrivals, here)
    return result


def _in_feasible_order(
    indexed: IndexedProblem, period: _Bits, rank: _Bits, place: Ints
) -> list[int]:
    """All ops by period, rank within it and place, each after its predecessors.

    A fractional solution, or an update that waits, may ask for another order; the moves of the
    search rely on it.
    """
    key = list(zip(period.tolist(), rank.tolist(), place.tolist(), range(len(place)), strict=True))
    missing = [len(before) for before in indexed.predecessors]
    ready = [key[i] for i, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        i = heappop(ready)[-1]
        order.append(i)
        for later in indexed.successors[i]:
            missing[later] -= 1
            if not missing[later]:
                heappush(ready, key[later])
    return order


def _made_on(indexed: IndexedProblem, x: Decisions, interval: int) -> int:
    """The device on which the touch before a use interval finds or leaves the tensor."""
    start, item = indexed.touches
    if interval >= len(item):
        return int(indexed.home[interval - len(item)])
    return int(x.device[int(np.searchsorted(start, interval, side="right")) - 1])


def _first_runs(model: TimePointModel, x: NDArray[np.float64]) -> tuple[_Bits, _Bits]:
    """Period and device of each op's first run."""
    count = model.indexed.op_count
    period, device = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    time_point_of = {op: k for k, op in enumerate(model.time_points(x).tolist()) if op >= 0}
    for i in range(count):
        if i in time_point_of:
            period[i] = time_point_of[i]
            device[i] = int(values_of(model.at[period[i], :, i], x).argmax())
            continue
        for k in range(model.periods.earliest[i], model.periods.latest[i] + 1):
            values = values_of(model.run[k, :, i], x)
            period[i], device[i] = k, int(values.argmax())
            if values.max() > 0.5:
                break
    return period, device


def _told_tensors(model: TimePointModel) -> list[bool]:
    """Whether the relaxation has columns for each tensor."""
    return [bool((model.keep[:, :, j] >= 0).any()) for j in range(model.keep.shape[2])]


def _settled(model: TimePointModel, device: _Bits) -> _Bits:
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


def _updates_to_delay(model: TimePointModel, x: NDArray[np.float64], period: _Bits) -> _Bits:
    """1 for updates in whose period a reader of the old state is repeated, else 0, shape (n,)."""
    indexed = model.indexed
    result = np.zeros(indexed.op_count, dtype=np.int64)
    for w in np.flatnonzero(indexed.updated_by >= 0).tolist():
        u = int(indexed.updated_by[w])
        for i in indexed.consumers[w]:
            if i != u and period[i] < period[u]:
                result[u] |= int(values_of(model.run[period[u], :, i], x).max() > 0.5)
    return result


def _kept_bits(model: TimePointModel, x: NDArray[np.float64]) -> _Bits:
    """Devices that keep each tensor at each time point, as bits, shape (K + 1, J)."""
    is_kept = values_of(model.keep, x) > 0.5
    weights = 1 << np.arange(is_kept.shape[1])
    return np.asarray((is_kept * weights[None, :, None]).sum(axis=1), np.int64)


def _arrivals(model: TimePointModel, x: NDArray[np.float64]) -> _Bits:
    """On how many devices each tensor is made or brought in each period, shape (K + 1, J)."""
    producer = model.indexed.producer
    runs = (values_of(model.run, x) > 0.5).sum(axis=1)
    copies = (values_of(model.copy, x) > 0.5).sum(axis=1)
    return np.asarray(copies + np.where(producer >= 0, runs[:, producer], 0), np.int64)


def _decide(result: Decisions, interval: int, kept: _Bits, arrivals: _Bits, here: int) -> None:
    """Set the decision of a use interval at whose time points the devices `kept` hold what is on `here`.

    `arrivals` counts what is brought back in the period before each of the time points: all but
    the last time it is dropped again, and then, too, if not kept at the last time point.
    """
    throughout = int(np.bitwise_and.reduce(kept))
    is_more = (kept & ~throughout) != 0
    last_stay = len(kept) - int(np.argmin(is_more[::-1])) if not is_more.all() else 0
    result.level[interval] = max(1, arrivals[: last_stay + 1].sum()) if is_more[-1] else NEVER
    if throughout == here:
        result.push[interval], result.keep[interval] = 0, EVERYWHERE
    else:
        result.push[interval], result.keep[interval] = throughout, throughout
