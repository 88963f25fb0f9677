"""The search for schedules: greedy, then local search with one seed after the other."""

from __future__ import annotations

import math

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.local_search.driver import Exchange, search
from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.events import ScheduleFound
from tvm_xengine.solvers.result import Limits, Objective


def search_in_turns(task: Task) -> None:
    """Search until it is over."""
    request, turns = task.request, _Turns(task)
    greedy_schedule(
        task.problem,
        objective=request.objective,
        on_schedule=lambda schedule, value: task.post(ScheduleFound(schedule, "greedy", value)),
        may_go_on=lambda: not turns.is_over(),
        clock=request.limits.clock,
    )
    if request.objective is Objective.MAKESPAN:
        turns.search_by_cost()
    number = 0
    while not task.is_over:
        turns.search(number)
        number += 1


class _Turns:
    """The turns of a search, each from the best schedule so far."""

    def __init__(self, task: Task) -> None:
        self.task, self.request = task, task.request
        self.is_small = len(task.problem.graph.ops) <= task.options.small_ops
        self.improved_s, self.value = 0.0, math.inf

    def search(self, number: int) -> None:
        """A turn by the requested objective."""
        self.improved_s = self.request.elapsed_s
        self.value = self.task.best[0] if self.task.best else math.inf
        found = search(
            self.task.problem,
            objective=self.request.objective,
            limits=Limits(self.request.remaining_s, clock=self.request.limits.clock),
            seed=self.request.seed + number,
            start=self._start,
            exchange=Exchange(self._improve, self._should_stop, self.task.board.hints),
        )
        if found is None:  # no decisions to begin from: nothing changes without news
            self.task.rest(self.task.options.tick_s)

    def search_by_cost(self) -> None:
        """A turn that looks for the cheapest schedule, from which the makespan is then improved."""
        share = self.task.options.cost_share
        found = search(
            self.task.problem,
            objective=Objective.COST,
            limits=Limits(share * self.request.remaining_s, clock=self.request.limits.clock),
            seed=self.request.seed,
            start=self._start,
            exchange=Exchange(should_stop=self.is_over),
        )
        if found is not None:
            self.task.post(ScheduleFound(found, "local-search"))

    @property
    def _start(self) -> Schedule | None:
        """The best schedule; without one what was given to begin from, though it breaks a budget."""
        return self.task.best[1] if self.task.best else self.request.start

    @property
    def _is_slow(self) -> bool:
        """Whether the search found nothing better for long, so that proofs get most of its core."""
        return (
            self.is_small
            and not self.task.counts_work
            and self.task.best is not None
            and self.task.board.is_proving
            and not self.task.board.is_narrow
            and not self.task.board.hints
            and self.request.elapsed_s - self.improved_s > self.task.options.patience_s
        )

    def _should_stop(self) -> bool:
        """Whether it is over, or to begin from a better schedule of another part."""
        if self._is_slow:
            self.task.rest(self.task.options.slow_rest_s)
        return self.is_over() or (self.task.best is not None and self.task.best[0] < self.value)

    def is_over(self) -> bool:
        """Whether it is over, after others have worked as much where work is counted."""
        self.task.others(False)
        return self.task.is_over

    def _improve(self, value: float, schedule: Schedule) -> None:
        self.improved_s, self.value = self.request.elapsed_s, value
        self.task.post(ScheduleFound(schedule, "local-search", value))
