"""Proven lower bounds on any size of graph, by relaxations with more and more moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.problem import Problem
from tvm_xengine.residency import trace_residency
from tvm_xengine.schedule import Compute, Schedule
from tvm_xengine.simulate import live_bytes
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import BackendRun
from tvm_xengine.solvers.formulations.moments import (
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

_EXACT_OPS = 200
_LARGE_GAP_RATIO = 1e-4
"""Beyond so many ops the relaxations are only solved to this gap; their bounds hold."""

RunProgram = Callable[[Program, BackendOptions, float], Answer]


def bounds(
    problem: Problem,
    request: Request,
    *,
    scope: Scope = Scope.EVERY_SCHEDULE,
    incumbent: Schedule | None = None,
    run: RunProgram | None = None,
) -> Iterator[Proof]:
    """Bounds that never fall, each proven for `scope`; ends when nothing is left to try.

    The first is the sum of every op at its cheapest (for the makespan: the critical path).
    Then relaxations follow with 1, 3, 6, ... moments among the ops at whose first runs memory
    is pressed, until all of them are moments or the time limit has come.

    Parameters
    ----------
    incumbent
        A schedule whose memory says where it is pressed.
    run
        Solves a program, by default with HiGHS in a worker process; what it is given last is a
        bound that is known already.
    """
    is_makespan = request.objective is Objective.MAKESPAN
    weighed = Objective.COST if is_makespan else request.objective
    indexed = index_problem(problem, weighed)
    run = run or _run_highs
    bound = critical_path(indexed) if is_makespan else indexed.cheapest
    yield Proof(bound, scope)
    pressed = _pressed_ops(indexed, incumbent)
    ancestors = ancestor_bits(indexed) if scope is Scope.EVERY_SCHEDULE else ()
    if scope is Scope.EVERY_SCHEDULE:
        pressed = _longest_chain(indexed, pressed)
    for count in _counts(len(pressed)):
        moments = _spread(pressed, count)
        periods = _periods(indexed, moments, scope, ancestors)
        if _column_estimate(indexed, count) > _MAX_COLUMNS or request.elapsed_s > (
            request.limits.time_limit_s
        ):
            return
        program = formulate_moments(indexed, periods, is_makespan=is_makespan)
        options = BackendOptions(
            time_limit_s=request.remaining_s,
            gap_ratio=0.0 if indexed.op_count <= _EXACT_OPS else _LARGE_GAP_RATIO,
            seed=request.seed,
        )
        answer = run(program, options, bound)
        if answer.outcome is Outcome.INFEASIBLE:
            yield Proof(bound, scope, is_infeasible=True)
            return
        if math.isfinite(answer.bound) and answer.bound > bound:
            bound = answer.bound
            request.say(f"bound {bound:g} from {count} moments, for {scope.value}")
        yield Proof(bound, scope)
        if answer.outcome is not Outcome.OPTIMAL:
            return  # the time limit: more moments would take longer


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


def _counts(most: int) -> Iterator[int]:
    """1, 3, 6, 12, ... up to `most`."""
    count = 1
    while count < most:
        yield count
        count = 3 if count == 1 else 2 * count
    if most:
        yield most


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


def _column_estimate(indexed: IndexedProblem, count: int) -> int:
    per_period = indexed.device_count * (indexed.op_count + indexed.tensor_count)
    return (count + 1) * (per_period + len(indexed.links) * indexed.tensor_count)


def _pressed_ops(indexed: IndexedProblem, incumbent: Schedule | None) -> list[tuple[int, float]]:
    """(op, pressure) of the ops at whose first run memory is pressed, in order.

    Pressure is what keeping everything would hold on the smallest device that computes, or what
    the incumbent holds, as a share of the budget.
    """
    computing = indexed.can_run.any(axis=0)
    pressure = _keep_all_units(indexed) / max(1.0, float(indexed.budget[computing].min()))
    if incumbent is not None:
        pressure = np.maximum(pressure, _incumbent_pressure(indexed, incumbent))
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


def _incumbent_pressure(indexed: IndexedProblem, incumbent: Schedule) -> NDArray[np.float64]:
    problem = indexed.problem
    live = live_bytes(problem, incumbent, trace_residency(problem, incumbent))
    budget = {device.name: device.budget_bytes for device in problem.platform.devices}
    index = {name: i for i, name in enumerate(indexed.op_names)}
    pressure = np.zeros(indexed.op_count)
    seen: set[str] = set()
    for position, step in enumerate(incumbent.steps):
        if isinstance(step, Compute) and step.op in index and step.op not in seen:
            seen.add(step.op)
            pressure[index[step.op]] = live[step.device][position] / budget[step.device]
    return pressure


def _longest_chain(
    indexed: IndexedProblem, pressed: Sequence[tuple[int, float]]
) -> list[tuple[int, float]]:
    """Those of the pressed ops on the chain of dependences that passes most of them."""
    weight = dict(pressed)
    length = np.zeros(indexed.op_count)
    before = np.full(indexed.op_count, -1)
    for i, tensors in enumerate(indexed.reads):
        producers = [int(indexed.producer[j]) for j in tensors if indexed.producer[j] >= 0]
        if producers:
            before[i] = max(producers, key=lambda u: length[u])
            length[i] = length[before[i]]
        length[i] += 1 if i in weight else 0
    chain: list[tuple[int, float]] = []
    at = int(length.argmax())
    while at >= 0:
        if at in weight:
            chain.append((at, weight[at]))
        at = int(before[at])
    return chain[::-1]
