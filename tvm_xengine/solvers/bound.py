"""Proven lower bounds on any size of graph, by relaxations with more and more moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.problem import Problem
from tvm_xengine.residency import trace_residency
from tvm_xengine.schedule import Compute, Schedule
from tvm_xengine.simulate import live_bytes
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import BackendRun
from tvm_xengine.solvers.formulations.encode_moments import encode_moments
from tvm_xengine.solvers.formulations.moments import (
    MomentModel,
    Periods,
    ancestor_bits,
    formulate_moments,
    periods_in_every_order,
    periods_in_given_order,
)
from tvm_xengine.solvers.indexed import IndexedProblem, index_problem
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.request import Proof, Request
from tvm_xengine.solvers.result import Objective, Scope

_PRESSED_RATIO = 0.9
"""An op is a candidate for a moment if at its first run this much of a budget is asked for."""
_MAX_COLUMNS = 60_000
"""Relaxations with more columns than this are not attempted."""
_EXACT_OPS = 60
"""Up to so many ops the relaxations are solved exactly, beyond to a share of the gap."""
_NEGLIGIBLE_SHARE = 1e-3
_GAP_SHARE = 0.05
_LARGEST_GAP_RATIO = 1e-3
_LEAST_SOLVE_S = 3.0
_SOLVE_SHARE = 0.3
"""One relaxation gets this share of what is left of the time, but a few seconds at least."""

RunProgram = Callable[[Program, BackendOptions, float], Answer]
OnSolution = Callable[
    [MomentModel, NDArray[np.float64], Schedule | None], NDArray[np.float64] | None
]
"""Told a relaxation, its solution and a schedule of the same order to stay close to, if any; says
how much of a budget carrying it out would ask for around the first run of each op, shape (n,),
or None where it cannot be carried out."""


@dataclass(frozen=True)
class Listener:
    """What a series of bounds asks and tells the search beside it.

    Attributes
    ----------
    incumbent
        The best (value, schedule) so far, or None.
    """

    incumbent: Callable[[], tuple[float, Schedule] | None] = lambda: None
    on_solution: OnSolution = lambda _model, _x, _near: None


def bounds(
    problem: Problem,
    request: Request,
    *,
    scope: Scope = Scope.EVERY_SCHEDULE,
    listener: Listener | None = None,
    run: RunProgram | None = None,
) -> Iterator[Proof]:
    """Bounds that never fall, each proven for `scope`; ends when nothing is left to try.

    The first is the sum of every op at its cheapest (for the makespan: the critical path).
    Then relaxations follow with more and more moments. Where a solution can be carried out,
    the next moments are those at which it asks for more than the budgets; else they are spread
    over the ops at whose first runs memory is pressed.

    Parameters
    ----------
    run
        Solves a program, by default with HiGHS in a worker process; what it is given last is a
        bound that is known already.
    """
    is_makespan = request.objective is Objective.MAKESPAN
    weighed = Objective.COST if is_makespan else request.objective
    indexed = index_problem(problem, weighed)
    run, listener = run or _run_highs, listener or Listener()
    neglected = negligible_tensors(indexed)
    bound = critical_path(indexed) if is_makespan else indexed.cheapest
    yield Proof(bound, scope)
    best = listener.incumbent()
    pressed = _pressed_ops(indexed, best[1] if best else None)
    ancestors = ancestor_bits(indexed) if scope is Scope.EVERY_SCHEDULE else ()
    trunk: list[int] = []
    if scope is Scope.EVERY_SCHEDULE:
        trunk = _trunk(indexed, {op for op, _ in pressed})
        pressed = [(op, share) for op, share in pressed if op in trunk]
    moments = set(_spread(pressed, 1)) if pressed else set()
    tried: set[frozenset[int]] = set()
    while moments and frozenset(moments) not in tried:
        tried.add(frozenset(moments))
        if _column_estimate(
            indexed, neglected, len(moments)
        ) > _MAX_COLUMNS or request.elapsed_s > (request.limits.time_limit_s):
            return
        periods = _periods(indexed, sorted(moments), scope, ancestors)
        model = formulate_moments(indexed, periods, is_makespan=is_makespan, neglected=neglected)
        best = listener.incumbent()
        options = BackendOptions(
            time_limit_s=max(_LEAST_SOLVE_S, _SOLVE_SHARE * request.remaining_s),
            gap_ratio=worthwhile_gap(indexed, best, bound),
            start=encode_moments(model, best[1]) if best and not is_makespan else None,
            seed=request.seed,
        )
        answer = run(model.program, options, bound)
        if answer.outcome is Outcome.INFEASIBLE:
            yield Proof(bound, scope, is_infeasible=True)
            return
        if math.isfinite(answer.bound) and answer.bound > bound:
            bound = answer.bound
            request.say(f"bound {bound:g} from {len(moments)} moments, for {scope.value}")
        pressure = listener.on_solution(model, answer.x, None) if answer.x is not None else None
        yield Proof(bound, scope)
        moments = _next_moments(moments, pressed, pressure, ancestors, trunk)


def _next_moments(
    moments: set[int],
    pressed: Sequence[tuple[int, float]],
    pressure: NDArray[np.float64] | None,
    ancestors: Sequence[int],
    trunk: Sequence[int],
) -> set[int]:
    """More moments: where a budget is exceeded most, else spread, else all of `pressed`.

    With `ancestors`, those for every order, they stay a chain of dependences: an excess stands
    for the op of the `trunk` that is next to it; where nothing is left there that fits, a new
    chain begins.
    """
    over = [] if pressure is None else np.flatnonzero(pressure > 1.0).tolist()
    fresh = [op for op in over if op not in moments]
    spread = _spread_out(pressed, moments)
    if not ancestors:
        return moments | (most_exceeded(fresh, 1 + len(moments) // 2, pressure) or spread)

    def fits(op: int) -> bool:
        return all(ancestors[max(m, op)] >> min(m, op) & 1 for m in moments)

    on_trunk = {min(trunk, key=lambda m: abs(m - op)): op for op in over} if trunk else {}
    if fitting := {m: op for m, op in on_trunk.items() if m not in moments and fits(m)}:
        chosen = most_exceeded(list(fitting.values()), 1 + len(moments) // 3, pressure)
        return moments | {m for m, op in fitting.items() if op in chosen}
    if fitting_fresh := [op for op in fresh if fits(op)]:
        return moments | most_exceeded(fitting_fresh, 1, pressure)
    if fitting_spread := [op for op in spread if fits(op)]:
        return moments | set(fitting_spread)
    return most_exceeded(fresh, 1, pressure) or moments


def _spread_out(pressed: Sequence[tuple[int, float]], moments: set[int]) -> set[int]:
    """About as many more of the pressed ops as there are moments, or all that are left."""
    count = min(len(pressed), 2 * len(moments) + 1)
    every = {op for op, _ in pressed}
    return (set(_spread(pressed, count)) - moments) or (every - moments)


def worthwhile_gap(
    indexed: IndexedProblem, best: tuple[float, Schedule] | None, bound: float
) -> float:
    """The relative gap to which a relaxation is worth solving."""
    if indexed.op_count <= _EXACT_OPS:
        return 0.0
    if best is None:
        return _LARGEST_GAP_RATIO
    gap = (best[0] - bound) / max(best[0], 1e-12)
    return float(min(_LARGEST_GAP_RATIO, max(1e-6, _GAP_SHARE * gap)))


def most_exceeded(ops: list[int], count: int, pressure: NDArray[np.float64] | None) -> set[int]:
    """`count` of the ops, far from each other, each the most pressed of its part."""
    if pressure is None or not ops:
        return set()
    parts = np.array_split(np.array(ops, np.int64), min(count, len(ops)))
    return {max(part.tolist(), key=lambda op: float(pressure[op])) for part in parts}


def critical_path(indexed: IndexedProblem) -> float:
    """Time of the longest chain of ops, each on its fastest device and copies for free."""
    fastest = indexed.run_weight.min(axis=1)
    ends = np.zeros(indexed.op_count)
    for i, tensors in enumerate(indexed.reads):
        producers = [int(indexed.producer[j]) for j in tensors if indexed.producer[j] >= 0]
        ends[i] = fastest[i] + max((ends[u] for u in producers), default=0.0)
    return float(ends.max())


def _run_highs(program: Program, options: BackendOptions, floor: float) -> Answer:
    return BackendRun("highs", program, options, floor=floor).answer()


def _spread(pressed: Sequence[tuple[int, float]], count: int) -> list[int]:
    """`count` of the (op, pressure) pairs: evenly spread, each the most pressed of its part."""
    parts = np.array_split(np.arange(len(pressed)), count)
    return [pressed[max(part.tolist(), key=lambda q: pressed[q][1])][0] for part in parts]


def _periods(
    indexed: IndexedProblem, moments: Sequence[int], scope: Scope, ancestors: Sequence[int]
) -> Periods:
    if scope is Scope.EVERY_SCHEDULE:
        return periods_in_every_order(indexed, moments, ancestors)
    return periods_in_given_order(indexed, moments)


def _column_estimate(indexed: IndexedProblem, neglected: NDArray[np.bool_], count: int) -> int:
    tensors = int((~neglected).sum())
    per_period = indexed.device_count * (indexed.op_count + tensors)
    return (count + 1) * (per_period + len(indexed.links) * tensors)


def negligible_tensors(indexed: IndexedProblem) -> NDArray[np.bool_]:
    """The smallest tensors, which together take a thousandth of a budget at most, shape (J,).

    None on small graphs. Update results are as negligible as their state.
    """
    if indexed.op_count <= _EXACT_OPS:
        return np.zeros(indexed.tensor_count, np.bool_)
    computing = indexed.can_run.any(axis=0)
    smallest_first = np.argsort(indexed.size, kind="stable")
    total = np.cumsum(indexed.size[smallest_first])
    result = np.zeros(indexed.tensor_count, np.bool_)
    result[smallest_first[total <= _NEGLIGIBLE_SHARE * indexed.budget[computing].min()]] = True
    updates = np.flatnonzero(indexed.update_of >= 0)
    result[updates] = result[indexed.update_of[updates]]
    return result


def _pressed_ops(indexed: IndexedProblem, incumbent: Schedule | None) -> list[tuple[int, float]]:
    """(op, pressure) of the ops at whose first run memory is pressed, in order.

    Pressure is what keeping everything would hold on the smallest device that computes, or what
    the incumbent holds, as a share of the budget.
    """
    computing = indexed.can_run.any(axis=0)
    pressure = _keep_all_units(indexed) / max(1.0, float(indexed.budget[computing].min()))
    if incumbent is not None:
        pressure = np.maximum(pressure, incumbent_pressure(indexed, incumbent))
    return [(i, float(pressure[i])) for i in np.flatnonzero(pressure >= _PRESSED_RATIO).tolist()]


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


def _trunk(indexed: IndexedProblem, pressed: set[int]) -> list[int]:
    """The chain of dependences that passes most of the pressed ops, and most ops beside."""
    length = np.zeros(indexed.op_count)
    before = np.full(indexed.op_count, -1)
    for i, tensors in enumerate(indexed.reads):
        producers = [int(indexed.producer[j]) for j in tensors if indexed.producer[j] >= 0]
        if producers:
            before[i] = max(producers, key=lambda u: length[u])
            length[i] = length[before[i]]
        length[i] += 1.0 if i in pressed else 1.0 / (1 + indexed.op_count)
    chain: list[int] = []
    at = int(length.argmax())
    while at >= 0:
        chain.append(at)
        at = int(before[at])
    return chain[::-1]
