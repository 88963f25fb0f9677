"""Where a relaxation looks at memory: the time points, and the tensors that it may neglect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import Compute, Schedule
from tvm_xengine.scheduling.simulate import live_bytes
from tvm_xengine.solvers.indexed import NONE, IndexedProblem
from tvm_xengine.solvers.relaxation.options import DEFAULTS, RelaxationOptions
from tvm_xengine.solvers.relaxation.periods import depend_on_each_other

_LEAST_WEIGHT = 1e-3
"""Pressure of all ops together that are not pressed: a thousandth of a budget is no matter."""


def pressed_ops(
    indexed: IndexedProblem, incumbent: Schedule | None, least_ratio: float
) -> list[tuple[int, float]]:
    """(op, pressure) of the ops at whose first run pressure is at least `least_ratio`, in order.

    Pressure is what keeping all tensors would hold on the smallest device that computes, or what
    the incumbent holds, as a share of the budget.
    """
    computing = indexed.can_run.any(axis=0)
    pressure = _keep_all_units(indexed) / max(1.0, float(indexed.budget[computing].min()))
    if incumbent is not None:
        pressure = np.maximum(pressure, incumbent_pressure(indexed, incumbent))
    return [(i, float(pressure[i])) for i in np.flatnonzero(pressure >= least_ratio).tolist()]


def _keep_all_units(indexed: IndexedProblem) -> NDArray[np.float64]:
    """Units of memory that are live at the first run of each op when nothing is dropped early."""
    n = indexed.op_count
    change = np.zeros(n + 1)
    for j in range(indexed.tensor_count):
        if indexed.update_of[j] >= 0:
            continue
        begin = max(int(indexed.producer[j]), 0)
        end = (
            n
            if indexed.must_end_on[j] != -1 or indexed.updated_by[j] >= 0
            else max([begin, *indexed.consumers[j]]) + 1
        )
        change[begin] += indexed.size[j]
        change[min(end, n)] -= indexed.size[j]
    workspace = np.where(indexed.can_run, indexed.workspace, np.iinfo(np.int64).max).min(axis=1)
    return np.asarray(np.cumsum(change)[:n] + workspace, np.float64)


def incumbent_pressure(indexed: IndexedProblem, incumbent: Schedule) -> NDArray[np.float64]:
    problem = indexed.problem
    live = live_bytes(problem, incumbent, trace_residency(problem, incumbent))
    budget = {device.name: device.budget_bytes for device in problem.platform.devices}
    index = indexed.op_index
    pressure = np.zeros(indexed.op_count)
    seen: set[str] = set()
    for position, step in enumerate(incumbent.steps):
        if isinstance(step, Compute) and step.op in index and step.op not in seen:
            seen.add(step.op)
            pressure[index[step.op]] = live[step.device][position] / budget[step.device]
    return pressure


def neediest(indexed: IndexedProblem, ops: Sequence[int]) -> set[int]:
    """The op among `ops` that leaves least of a budget to what it does not touch; none of none."""
    touched = [{*reads, *makes} for reads, makes in zip(indexed.reads, indexed.makes, strict=True)]
    need = np.array([sum(indexed.size[j] for j in own) for own in touched])[:, None]
    left = np.where(indexed.can_run, (indexed.budget - need - indexed.workspace), -np.inf)
    share = (left / np.maximum(1, indexed.budget)).max(axis=1)
    return {min(ops, key=lambda i: float(share[i]))} if len(ops) else set()


def trunk_of(
    indexed: IndexedProblem, pressed: Sequence[tuple[int, float]], least_ratio: float
) -> list[int]:
    """The chain of dependences along which memory is pressed most, and of equals the one of most ops.

    It counts how much that is at the first run of an op, and not only whether: of two parts of a step,
    such as slices of the batch, a chain may pass through one only.

    Parameters
    ----------
    pressed
        Of :func:`pressed_ops` with `least_ratio`.
    """
    weight = np.full(indexed.op_count, _LEAST_WEIGHT / (1 + indexed.op_count))
    for op, pressure in pressed:
        weight[op] += pressure - least_ratio
    length = np.zeros(indexed.op_count)
    before = np.full(indexed.op_count, NONE)
    for i, tensors in enumerate(indexed.reads):
        producers = [int(indexed.producer[j]) for j in tensors if indexed.producer[j] >= 0]
        if producers:
            before[i] = max(producers, key=lambda u: length[u])
            length[i] = length[before[i]]
        length[i] += weight[i]
    chain: list[int] = []
    at = int(length.argmax())
    while at >= 0:
        chain.append(at)
        at = int(before[at])
    return chain[::-1]


def negligible_tensors(
    indexed: IndexedProblem, options: RelaxationOptions = DEFAULTS
) -> NDArray[np.bool_]:
    """The smallest tensors, which together take a negligible share of a budget, shape (J,).

    None on small graphs. Update results are as negligible as their state.
    """
    if indexed.op_count <= options.small_ops:
        return np.zeros(indexed.tensor_count, np.bool_)
    computing = indexed.can_run.any(axis=0)
    smallest_first = np.argsort(indexed.size, kind="stable")
    total = np.cumsum(indexed.size[smallest_first])
    result = np.zeros(indexed.tensor_count, np.bool_)
    most = options.negligible_share * indexed.budget[computing].min()
    result[smallest_first[total <= most]] = True
    updates = np.flatnonzero(indexed.update_of >= 0)
    result[updates] = result[indexed.update_of[updates]]
    return result


def next_time_points(
    time_points: set[int],
    pressed: Sequence[tuple[int, float]],
    pressure: NDArray[np.float64] | None,
    ancestors: Sequence[int],
    trunk: Sequence[int],
    *,
    may_float: bool = False,
) -> set[int]:
    """More time points: where a budget is exceeded most, else spread, else all of `pressed`.

    With `ancestors`, those for every order, they stay a chain of dependences, unless they `may_float`:
    an excess stands for the op of the `trunk` that is next to it; where nothing is left there that
    fits, a new chain begins.
    """
    over = _exceeding(pressure)
    fresh = [op for op in over if op not in time_points]
    spread = _spread_out(pressed, time_points)
    if may_float and (fresh or spread):
        return time_points | (most_exceeded(fresh, 1, pressure) or spread)
    if not ancestors:
        return time_points | (most_exceeded(fresh, 1 + len(time_points) // 2, pressure) or spread)

    def fits(op: int) -> bool:
        return depend_on_each_other(ancestors, time_points, op)

    on_trunk = _next_to(trunk, over)
    if fitting := {m: op for m, op in on_trunk.items() if m not in time_points and fits(m)}:
        chosen = most_exceeded(list(fitting.values()), 1 + len(time_points) // 3, pressure)
        return time_points | {m for m, op in fitting.items() if op in chosen}
    if fitting_fresh := [op for op in fresh if fits(op)]:
        return time_points | most_exceeded(fitting_fresh, 1, pressure)
    if fitting_spread := [op for op in spread if fits(op)]:
        return time_points | set(fitting_spread)
    return most_exceeded(fresh, 1, pressure) or time_points


def exceeding_on(trunk: Sequence[int], pressure: NDArray[np.float64] | None) -> list[int]:
    """Those of the trunk that are next to an op at which a budget is exceeded, in order."""
    return sorted(_next_to(trunk, _exceeding(pressure)))


def with_suggested(
    time_points: set[int],
    suggested: Collection[int],
    trunk: Sequence[int],
    ancestors: Sequence[int],
) -> set[int]:
    """`time_points`, a chain of dependences, and those next to `suggested` on the trunk that fit."""
    on_trunk = _next_to(trunk, suggested)
    return time_points | {op for op in on_trunk if depend_on_each_other(ancestors, time_points, op)}


def _exceeding(pressure: NDArray[np.float64] | None) -> list[int]:
    return [] if pressure is None else np.flatnonzero(pressure > 1.0).tolist()


def _next_to(trunk: Sequence[int], ops: Iterable[int]) -> dict[int, int]:
    """Those of the trunk that are next to one of `ops`, and the last such op of each."""
    return {min(trunk, key=lambda m: abs(m - op)): op for op in ops} if trunk else {}


def _spread_out(pressed: Sequence[tuple[int, float]], time_points: set[int]) -> set[int]:
    """About as many more of the pressed ops as there are time points, or all that are left."""
    count = min(len(pressed), 2 * len(time_points) + 1)
    every = {op for op, _ in pressed}
    return (set(spread(pressed, count)) - time_points) or (every - time_points)


def most_exceeded(ops: list[int], count: int, pressure: NDArray[np.float64] | None) -> set[int]:
    """`count` of the ops, far from each other, each the most pressed of its part."""
    if pressure is None or not ops:
        return set()
    parts = np.array_split(np.array(ops, np.int64), min(count, len(ops)))
    return {max(part.tolist(), key=lambda op: float(pressure[op])) for part in parts}


def spread(pressed: Sequence[tuple[int, float]], count: int) -> list[int]:
    """`count` of the (op, pressure) pairs: evenly spread, each the most pressed of its part.

    Of equals that is the one in the middle.
    """
    parts = [part.tolist() for part in np.array_split(np.arange(len(pressed)), count)]
    return [
        pressed[max(part, key=lambda q: (pressed[q][1], -abs(2 * q - part[0] - part[-1])))][0]
        for part in parts
    ]
