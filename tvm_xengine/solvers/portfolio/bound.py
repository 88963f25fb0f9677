"""Proven lower bounds for graphs of any size, by relaxations with more and more time points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome, RunProgram
from tvm_xengine.solvers.index_problem import index_problem, summed
from tvm_xengine.solvers.indexed import (
    Floats,
    IndexedProblem,
)
from tvm_xengine.solvers.portfolio.context import Context
from tvm_xengine.solvers.portfolio.options import PortfolioOptions
from tvm_xengine.solvers.portfolio.streams import stream_bounds
from tvm_xengine.solvers.relaxation.choose import (
    exceeding_on,
    neediest,
    next_time_points,
    pressed_ops,
    spread,
    trunk_of,
    with_suggested,
)
from tvm_xengine.solvers.relaxation.encode import encode_time_points
from tvm_xengine.solvers.relaxation.loads import makespan_floor
from tvm_xengine.solvers.relaxation.periods import ancestor_bits, positions_in_every_order
from tvm_xengine.solvers.relaxation.relaxations import Relaxations
from tvm_xengine.solvers.relaxation.strong_branching import with_chosen_time_points
from tvm_xengine.solvers.relaxation.time_points import TimePointModel, formulate_time_points
from tvm_xengine.solvers.request import Proof
from tvm_xengine.solvers.result import Objective, Scope

_LEAST_VALUE = 1e-12
"""Divides a gap instead of a value of zero."""
_EXACT_RATIO = 1e-6
"""The smallest gap that a backend is asked for: its own tolerance."""


def bounds(
    context: Context,
    scope: Scope = Scope.EVERY_SCHEDULE,
    run: RunProgram | None = None,
    run_apart: RunProgram | None = None,
) -> Iterator[Proof]:
    """Bounds that never fall, each proven for `scope`; ends when nothing is left to try.

    The first is the sum of every op at its cheapest (for the makespan: the longest chain, or loads).
    Then relaxations follow with more and more time points. Where a solution can be carried out,
    the next time points are among those at which it asks for more than the budgets: the ones that
    raise the linear relaxation most, or where none does those that ask for most; else they are spread
    over the ops at whose first runs memory is pressed.

    Parameters
    ----------
    run
        Solves a program, by default in a worker process.
    run_apart
        The same for programs whose bounds say nothing about the schedules.
    """
    request = context.task.request
    is_makespan = request.objective is Objective.MAKESPAN
    indexed = index_problem(context.task.problem, summed(request.objective))
    floor = makespan_floor(indexed) if is_makespan else indexed.cheapest
    yield Proof(floor, scope)
    relaxations = Relaxations(indexed, scope, is_makespan, context.task.options.relaxation)
    run = run or context.solver(scope)
    run_apart = run_apart or run
    if is_makespan:
        for bound, found in stream_bounds(context, relaxations, run, run_apart):
            floor, relaxations = max(floor, bound), found
            yield Proof(floor, scope)
    yield from _Series(context, relaxations, floor, run, run_apart).proofs()


@dataclass
class _Series:
    """Relaxations of one scope, their best bound, and the next time points.

    Attributes
    ----------
    trunk
        The chain of dependences that time points are taken from; empty in the graph's order.
    tried
        Sets of time points that had their turn.
    solved
        The last time points whose relaxation was solved to its gap; none once that was refined.
    is_again
        Whether the relaxation at `time_points` is solved once more, to the finest gap.
    """

    context: Context
    relaxations: Relaxations
    bound: float
    run: RunProgram
    run_apart: RunProgram
    time_points: set[int] = field(default_factory=set)
    pressed: list[tuple[int, float]] = field(default_factory=list)
    trunk: list[int] = field(default_factory=list)
    tried: set[frozenset[int]] = field(default_factory=set)
    solved: set[int] = field(default_factory=set)
    is_again: bool = False

    def __post_init__(self) -> None:
        options, indexed, best = self.options, self.indexed, self.context.task.best
        self.is_small = indexed.op_count <= options.relaxation.small_ops
        is_hard = self.is_small or self.relaxations.is_makespan
        self.time_share = options.small_solve_share if is_hard else options.solve_share
        ratio = options.relaxation.pressed_ratio
        self.pressed = pressed_ops(indexed, best[1] if best else None, ratio)
        if self.relaxations.scope is Scope.EVERY_SCHEDULE:
            self.trunk = trunk_of(indexed, self.pressed, ratio)
            pressure = dict(self.pressed)
            # For the makespan a time point also says what must be over before others begin.
            of = self.trunk if self.relaxations.is_makespan else pressure
            self.pressed = [(op, pressure.get(op, 0.0)) for op in self.trunk if op in of]
        self.time_points = set(spread(self.pressed, 1)) if self.pressed else set()
        self.time_points |= neediest(indexed, [op for op, _ in self.pressed])

    @property
    def options(self) -> PortfolioOptions:
        """Of the portfolio."""
        return self.context.task.options

    @property
    def indexed(self) -> IndexedProblem:
        """The problem of the relaxations."""
        return self.relaxations.indexed

    def proofs(self) -> Iterator[Proof]:
        """One for each relaxation that is solved."""
        scope = self.relaxations.scope
        while self.time_points and (self.is_again or frozenset(self.time_points) not in self.tried):
            self.tried.add(frozenset(self.time_points))
            if self._is_too_much():
                return
            model = self.relaxations.at(self.time_points)
            gap_ratio = self._gap_ratio()
            answer = self._solve(model, gap_ratio)
            if answer.outcome is Outcome.INFEASIBLE:
                yield Proof(self.bound, scope, is_infeasible=True)
                return
            is_higher = math.isfinite(answer.bound) and answer.bound > self.bound
            if is_higher:
                self.bound = answer.bound
            pressure = self.context.carry_out(model, answer.x)
            yield Proof(self.bound, scope)
            if answer.outcome is Outcome.OPTIMAL and gap_ratio > self.options.finest_gap_ratio:
                self.solved = self.time_points
            elif self.solved and not is_higher:
                self.time_points, self.solved = self.solved, set()
                self.is_again, self.time_share = True, self.options.again_share
                continue
            self.is_again = False
            self._grow(pressure)

    def _is_too_much(self) -> bool:
        places = self.relaxations.periods(self.time_points).time_point_count
        is_large = self.relaxations.columns(places) > self.options.max_columns
        return is_large or self.context.task.request.is_over

    def _gap_ratio(self) -> float:
        options = self.options
        if self.is_again:
            return options.finest_gap_ratio
        is_first = len(self.tried) == 1
        largest = options.rough_gap_ratio if is_first else options.larger_gap_ratio
        return worthwhile_gap(self.indexed, self.context.task.best, self.bound, largest, options)

    def _solve(self, model: TimePointModel, gap_ratio: float) -> Answer:
        task = self.context.task
        can_start = task.best is not None and not self.relaxations.is_makespan
        options = BackendOptions(
            time_limit_s=max(
                self.options.least_solve_s, self.time_share * task.request.remaining_s
            ),
            gap_ratio=gap_ratio,
            start=encode_time_points(model, task.best[1]) if task.best and can_start else None,
            seed=task.request.seed,
        )
        return self.run(model.program, options, self.bound)

    def _grow(self, pressure: Floats | None) -> None:
        """Add time points, or begin a new chain of them."""
        relaxations, trunk, grown = self.relaxations, self.trunk, self.time_points
        if trunk and not self.is_small:
            grown = with_chosen_time_points(
                relaxations,
                self.time_points,
                exceeding_on(trunk, pressure),
                run=self.run_apart,
                limit_s=self.options.branching_share * self.context.task.request.remaining_s,
            )
        if grown == self.time_points:
            grown = next_time_points(
                *(grown, self.pressed, pressure, relaxations.ancestors, trunk),
                may_float=relaxations.may_float,
            )
        if trunk:
            grown = with_suggested(grown, self.context.sufficed, trunk, relaxations.ancestors)
        self.time_points = grown


def bound_of_open_order(context: Context, run: RunProgram) -> Proof:
    """A bound for every schedule by one relaxation with a time point at each first run.

    It leaves their order open, so it grows with the square of the number of ops.
    """
    task = context.task
    indexed = index_problem(task.problem, task.request.objective)
    periods = positions_in_every_order(indexed, ancestor_bits(indexed))
    model = formulate_time_points(indexed, periods)
    start = encode_time_points(model, task.best[1]) if task.best else None
    options = BackendOptions(task.request.remaining_s, 0.0, start=start, seed=task.request.seed)
    answer = run(model.program, options, indexed.cheapest)
    context.carry_out(model, answer.x)
    is_infeasible = answer.outcome is Outcome.INFEASIBLE
    bound = indexed.cheapest if is_infeasible else max(indexed.cheapest, answer.bound)
    return Proof(bound, Scope.EVERY_SCHEDULE, is_infeasible)


def worthwhile_gap(
    indexed: IndexedProblem,
    best: tuple[float, Schedule] | None,
    bound: float,
    largest_ratio: float,
    options: PortfolioOptions,
) -> float:
    """The relative gap to which a relaxation is worth solving, at most `largest_ratio`."""
    if indexed.op_count <= options.relaxation.small_ops:
        return 0.0
    if best is None:
        return largest_ratio
    gap = (best[0] - bound) / max(best[0], _LEAST_VALUE)
    return float(min(largest_ratio, max(_EXACT_RATIO, options.gap_share * gap)))
