"""Improves schedules with relaxations in the order of the best schedule so far.

They prove nothing, since another order may be better, but in a fixed order time points may be put
wherever memory is short: a few rounds lead to a solution that can be carried out as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, RunProgram
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.indexed import (
    Floats,
)
from tvm_xengine.solvers.portfolio.bound import worthwhile_gap
from tvm_xengine.solvers.portfolio.context import Context
from tvm_xengine.solvers.relaxation.choose import (
    incumbent_pressure,
    most_exceeded,
    negligible_tensors,
)
from tvm_xengine.solvers.relaxation.encode import encode_time_points
from tvm_xengine.solvers.relaxation.periods import periods_in_order
from tvm_xengine.solvers.relaxation.time_points import TimePointModel, formulate_time_points


def refine(context: Context, run: RunProgram) -> Iterator[None]:
    """Solve relaxations in the order of the best schedule, and carry every solution out.

    In between a schedule that a relaxation for every order proposes, though it fits no budget yet,
    has its order tried, as long as better solutions are found in that order. Waits for a first
    schedule; ends when the time points of its order are exhausted and nothing more is proposed.
    """
    rounds = _Rounds(context, run)
    while not context.task.request.is_over and rounds.idle < context.task.options.most_idle:
        rounds.next()
        yield


@dataclass
class _Order:
    """Relaxations in the order of a schedule, by default the best, with more and more time points."""

    schedule: Schedule | None = None
    time_points: set[int] = field(default_factory=set)
    is_new: bool = True


class _Rounds:
    """Rounds in the order of the best schedule, and between them in one that was proposed.

    Attributes
    ----------
    idle
        Rounds in a row that had nothing to try.
    """

    def __init__(self, context: Context, run: RunProgram) -> None:
        self.context, self.run, self.task = context, run, context.task
        indexed = index_problem(self.task.problem, self.task.request.objective)
        self.neglected = negligible_tensors(indexed, self.task.options.relaxation)
        room = int(indexed.size[self.neglected].sum())
        self.indexed = replace(indexed, budget=indexed.budget - room)
        self.of_best = _Order()
        self.proposed: _Order | None = None
        self.since_proposed = 0
        self.idle = 0

    def next(self) -> None:
        """One relaxation in one of the orders, if there is a schedule to begin from."""
        best, options = self.task.best, self.task.options
        if best is None:
            self.task.rest(options.tick_s)
            return
        if self.proposed is None and self.since_proposed >= options.rounds_between:
            proposal = self.context.take_proposal()
            self.proposed = _Order(proposal[0], set(proposal[1])) if proposal else None
            self.since_proposed = 0
        order = self.proposed or self.of_best
        schedule = order.schedule or best[1]
        first_runs = self.indexed.first_runs(schedule)
        fresh = [i for i in first_runs if i not in order.time_points]
        self.since_proposed += 1
        if not fresh or len(order.time_points) > options.most_time_points:
            self.idle += self.proposed is None
            self.proposed = None
            return
        self.idle = 0
        pressure = incumbent_pressure(self.indexed, schedule)
        if order.is_new:
            order.time_points |= most_exceeded(fresh, options.first_time_points, pressure)
            order.is_new = False
        periods = periods_in_order(self.indexed, sorted(order.time_points), first_runs)
        model = formulate_time_points(self.indexed, periods, neglected=self.neglected)
        answer = self._solve(model, schedule, best)
        asked = self.context.carry_out(model, answer.x, schedule)
        self._judge(order, answer, asked, best[0])
        _grow(order, fresh, asked, pressure)

    def _solve(
        self, model: TimePointModel, schedule: Schedule, best: tuple[float, Schedule]
    ) -> Answer:
        options, request = self.task.options, self.task.request
        return self.run(
            model.program,
            BackendOptions(
                time_limit_s=max(
                    options.least_refine_s, options.refine_share * request.remaining_s
                ),
                gap_ratio=worthwhile_gap(self.indexed, best, 0.0, options.rough_gap_ratio, options),
                start=encode_time_points(model, schedule),
                seed=request.seed,
            ),
            0.0,
        )

    def _judge(self, order: _Order, answer: Answer, asked: Floats | None, best: float) -> None:
        """Record time points that sufficed, and give up a proposed order without a better solution."""
        fits = asked is not None and bool(asked.max() <= 1.0)
        if fits:
            self.context.sufficed = frozenset(order.time_points)
        if fits or answer.value is None or answer.value >= best:
            self.proposed = None


def _grow(order: _Order, fresh: list[int], asked: Floats | None, pressure: Floats) -> None:
    """Add time points where the solution asks for more than a budget, else where the schedule does."""
    more = 1 + len(order.time_points) // 2
    beyond = [] if asked is None else [i for i in fresh if asked[i] > 1.0]
    order.time_points |= most_exceeded(beyond, more, asked) or most_exceeded(fresh, more, pressure)
