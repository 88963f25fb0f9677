"""Proven lower bounds on any size of graph, by relaxations with more and more time points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome, RunProgram
from tvm_xengine.solvers.backends.process import BackendRun
from tvm_xengine.solvers.indexed import IndexedProblem, index_problem
from tvm_xengine.solvers.portfolio.options import DEFAULTS
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.relaxation.choose import (
    SMALL_OPS,
    exceeding_on,
    neediest,
    next_time_points,
    pressed_ops,
    spread,
    trunk_of,
    with_suggested,
)
from tvm_xengine.solvers.relaxation.encode import encode_time_points
from tvm_xengine.solvers.relaxation.periods import ancestor_bits, positions_in_every_order
from tvm_xengine.solvers.relaxation.relaxations import Relaxations
from tvm_xengine.solvers.relaxation.strong_branching import with_chosen_time_points
from tvm_xengine.solvers.relaxation.time_points import TimePointModel, formulate_time_points
from tvm_xengine.solvers.request import Proof, Request
from tvm_xengine.solvers.result import Objective, Scope

OnSolution = Callable[
    [TimePointModel, NDArray[np.float64], Schedule | None], NDArray[np.float64] | None
]
"""Told a relaxation, its solution and a schedule of the same order to stay close to, if any; says
how much of a budget carrying it out would ask for around the first run of each op, shape (n,),
or None where it cannot be carried out."""

Proposal = tuple[Schedule, set[int]]


@dataclass(frozen=True)
class Listener:
    """What a series of bounds asks and tells the search beside it.

    Attributes
    ----------
    incumbent
        The best (value, schedule) so far, or None.
    suggested
        Ops that sufficed as time points elsewhere.
    proposed
        A schedule in a new order that is cheap and may fit the budgets after some changes, and the
        time points at which it does; once.
    """

    incumbent: Callable[[], tuple[float, Schedule] | None] = lambda: None
    on_solution: OnSolution = lambda _model, _x, _near: None
    suggested: Callable[[], set[int]] = set
    proposed: Callable[[], Proposal | None] = lambda: None


def bounds(
    problem: Problem,
    request: Request,
    *,
    scope: Scope = Scope.EVERY_SCHEDULE,
    listener: Listener | None = None,
    run: RunProgram | None = None,
    run_aside: RunProgram | None = None,
) -> Iterator[Proof]:
    """Bounds that never fall, each proven for `scope`; ends when nothing is left to try.

    The first is the sum of every op at its cheapest (for the makespan: the critical path).
    Then relaxations follow with more and more time points. Where a solution can be carried out,
    the next time points are among those at which it asks for more than the budgets: the ones that raise
    the linear relaxation, or where none does those that ask for most; else they are spread over
    the ops at whose first runs memory is pressed.

    Parameters
    ----------
    run
        Solves a program, by default with HiGHS in a worker process.
    run_aside
        The same for programs whose bounds say nothing about the schedules.
    """
    is_makespan = request.objective is Objective.MAKESPAN
    weighed = Objective.COST if is_makespan else request.objective
    indexed = index_problem(problem, weighed)
    run, listener = run or _run_highs, listener or Listener()
    run_aside = run_aside or run
    relaxations = Relaxations(indexed, scope, is_makespan)
    bound = critical_path(indexed) if is_makespan else indexed.cheapest
    yield Proof(bound, scope)
    best = listener.incumbent()
    pressed = pressed_ops(indexed, best[1] if best else None)
    time_share = (
        DEFAULTS.small_solve_share if indexed.op_count <= SMALL_OPS else DEFAULTS.solve_share
    )
    trunk: list[int] = []
    if scope is Scope.EVERY_SCHEDULE:
        trunk = trunk_of(indexed, {op for op, _ in pressed})
        pressed = [(op, share) for op, share in pressed if op in trunk]
    time_points = set(spread(pressed, 1)) if pressed else set()
    time_points |= neediest(indexed, [op for op, _ in pressed])
    tried: set[frozenset[int]] = set()
    solved: set[int] = set()
    is_again = False
    while time_points and (is_again or frozenset(time_points) not in tried):
        tried.add(frozenset(time_points))
        is_over = request.elapsed_s > request.limits.time_limit_s
        if is_over or relaxations.columns(len(time_points)) > DEFAULTS.max_columns:
            return
        model = relaxations.at(time_points)
        best = listener.incumbent()
        largest_gap = DEFAULTS.rough_gap_ratio if len(tried) == 1 else DEFAULTS.larger_gap_ratio
        gap = worthwhile_gap(indexed, best, bound, largest_gap)
        options = BackendOptions(
            time_limit_s=max(DEFAULTS.least_solve_s, time_share * request.remaining_s),
            gap_ratio=DEFAULTS.finest_gap_ratio if is_again else gap,
            start=encode_time_points(model, best[1]) if best and not is_makespan else None,
            seed=request.seed,
        )
        answer = run(model.program, options, bound)
        if answer.outcome is Outcome.INFEASIBLE:
            yield Proof(bound, scope, is_infeasible=True)
            return
        is_higher = math.isfinite(answer.bound) and answer.bound > bound
        if is_higher:
            bound = answer.bound
            request.say(f"bound {bound:g} from {len(time_points)} time points, for {scope.value}")
        pressure = listener.on_solution(model, answer.x, None) if answer.x is not None else None
        yield Proof(bound, scope)
        if answer.outcome is Outcome.OPTIMAL and options.gap_ratio > DEFAULTS.finest_gap_ratio:
            solved = time_points
        elif solved and not is_higher:
            time_points, solved, is_again, time_share = solved, set(), True, DEFAULTS.again_share
            continue
        is_again = False
        grown = time_points
        if trunk and indexed.op_count > SMALL_OPS:
            grown = with_chosen_time_points(
                relaxations,
                time_points,
                exceeding_on(trunk, pressure),
                run=run_aside,
                limit_s=DEFAULTS.branching_share * request.remaining_s,
            )
        if grown == time_points:
            grown = next_time_points(time_points, pressed, pressure, relaxations.ancestors, trunk)
        time_points = grown
        if trunk:
            time_points = with_suggested(
                time_points, listener.suggested(), trunk, relaxations.ancestors
            )


def bound_of_open_order(
    problem: Problem, request: Request, *, listener: Listener, run: RunProgram
) -> Proof:
    """A bound for every schedule by one relaxation that looks at memory at each first run.

    It leaves their order open, so it grows with the square of the number of ops.
    """
    indexed = index_problem(problem, request.objective)
    model = formulate_time_points(
        indexed, positions_in_every_order(indexed, ancestor_bits(indexed))
    )
    best = listener.incumbent()
    start = encode_time_points(model, best[1]) if best else None
    options = BackendOptions(request.remaining_s, 0.0, start=start, seed=request.seed)
    answer = run(model.program, options, indexed.cheapest)
    if answer.x is not None:
        listener.on_solution(model, answer.x, None)
    is_infeasible = answer.outcome is Outcome.INFEASIBLE
    bound = indexed.cheapest if is_infeasible else max(indexed.cheapest, answer.bound)
    return Proof(bound, Scope.EVERY_SCHEDULE, is_infeasible)


def worthwhile_gap(
    indexed: IndexedProblem,
    best: tuple[float, Schedule] | None,
    bound: float,
    largest_ratio: float = DEFAULTS.rough_gap_ratio,
) -> float:
    """The relative gap to which a relaxation is worth solving, at most `largest_ratio`."""
    if indexed.op_count <= SMALL_OPS:
        return 0.0
    if best is None:
        return largest_ratio
    gap = (best[0] - bound) / max(best[0], 1e-12)
    return float(min(largest_ratio, max(1e-6, DEFAULTS.gap_share * gap)))


def critical_path(indexed: IndexedProblem) -> float:
    """Time of the longest chain of ops, each on its fastest device and copies for free."""
    fastest = indexed.compute_value.min(axis=1)
    ends = np.zeros(indexed.op_count)
    for i, tensors in enumerate(indexed.reads):
        producers = [int(indexed.producer[j]) for j in tensors if indexed.producer[j] >= 0]
        ends[i] = fastest[i] + max((ends[u] for u in producers), default=0.0)
    return float(ends.max())


def _run_highs(program: Program, options: BackendOptions, floor: float) -> Answer:
    return BackendRun("highs", program, options, floor=floor).answer()
