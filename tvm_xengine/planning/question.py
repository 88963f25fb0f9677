"""What is asked of a plan, and the answers of solvers to it, which share one clock."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tvm_xengine.planning.alternatives.savings import with_savings
from tvm_xengine.planning.clock import LEAST_SOLVE_S, Clock
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.tighten import with_smaller_budgets
from tvm_xengine.scheduling.arena.plan import (
    PACKING_EFFORT,
    ArenaPlan,
    plan_arenas,
    quick_effort,
)
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.request import MAX_SEED, Request
from tvm_xengine.solvers.result import Limits, Objective, SolveResult, Status
from tvm_xengine.solvers.solve import answer, backend_for, solve

_FIRST_SHARE = 0.75
"""Share of the time limit for the first answer. The rest is for answers under tightened budgets, or,
where the first layout fits, for a better schedule. Less would take from the proof, which only the first
answer contributes to; with more, nothing is left where layouts need several attempts."""
_OVERLAPPED_SHARE = 0.5
"""The same as the first share where streams overlap: no schedule runs as promised before its layout is known,
and most of what a search gains later is less than what streams wait for each other's memory."""
RETRY_SHARE = 0.4
"""Share of what is left of the time for one answer under tightened budgets, since there may be more."""
_OVERLAPPED_RETRY_SHARE = 0.15
"""The same as the share for one answer under tightened budgets: these only have to fit step by step."""
_WORTHWHILE_SHARE, _WORTHWHILE_S = 0.15, 2.0
"""With less than this share of the time limit, and less than these seconds, an answer under tightened
budgets is left to the local search, which begins from the last schedule: a proof of that answer is of
no use, and workers that look for one take the time from the search."""
LONG_STEPS = 400
_UNHURRIED_S = 10.0
"""With less time left the layout of a long schedule is packed with a tenth of the usual effort: on a
U-Net of two devices that takes 0.2 s in place of 2.5 s. Shorter schedules are always packed with all
of it, so that the same schedule has the same arena whatever time is left."""
_HOME_S = 2.0
"""Processor time, beyond the limit if need be, for a layout with all state at the bottom: without one
the evaluation of a package may not fit, which must not depend on how busy the machine is."""
_COUNTED_S_PER_STEP = 1e-4
"""Work for each step of a schedule to change, simulate and lay it out once."""
_COUNTED_S_PER_STEP_IN_STREAMS = 2e-3
"""The same for layouts in which streams wait little for each other's memory."""
_RESUMABLE = ("auto", "local-search")
"""Solvers that improve on a schedule they are given."""


@dataclass(frozen=True)
class PlanOptions:
    """Solver, objective and limits of a plan; see `tvm_xengine.solvers.solve`.

    Attributes
    ----------
    over_at_s
        When nothing new may begin, by the clock of the limits; by default the limit says so. Plans that
        are made for one answer share it.
    """

    solver: str = "auto"
    objective: Objective = Objective.COST
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    backend: str | None = None
    over_at_s: float | None = None

    def within(self, limit_s: float) -> PlanOptions:
        """The same with another time limit."""
        return replace(self, limits=replace(self.limits, time_limit_s=limit_s))


@dataclass(frozen=True)
class Question:
    """The problem and the options of a plan; all answers share one clock.

    Attributes
    ----------
    passed
        Each schedule that was the best of an answer for a while, and its value.
    """

    problem: Problem
    options: PlanOptions
    start: Schedule | None
    on_progress: Callable[[str], None] | None
    stop: threading.Event
    clock: Clock
    passed: dict[Schedule, float] = field(default_factory=dict)

    def first(self) -> SolveResult:
        """The answer for the budgets asked for, with a diagnosis where there is no schedule."""
        options, limits = self.options, self.options.limits
        is_long = _OVERLAPPED_SHARE * limits.time_limit_s >= _WORTHWHILE_S
        share = _OVERLAPPED_SHARE if self.is_overlapped and is_long else _FIRST_SHARE
        result = solve(
            self.problem,
            options.solver,
            options.backend,
            objective=options.objective,
            limits=replace(limits, time_limit_s=share * limits.time_limit_s),
            seed=options.seed,
            start=self.start,
            on_progress=self.on_progress,
            on_better=self.note,
            stop=self.stop,
        )
        self._note_result(result)
        return result

    def note(self, value: float, schedule: Schedule) -> None:
        """Remember a schedule of a value."""
        self.passed.setdefault(schedule, value)

    def _note_result(self, result: SolveResult) -> None:
        """Where streams overlap, the schedule of an answer is one of several; else it is laid out first."""
        if self.is_overlapped and result.value is not None and result.schedule is not None:
            self.note(result.value, result.schedule)

    def again(
        self,
        problem: Problem,
        share: float,
        attempt: int,
        start: Schedule | None,
        solver: str | None = None,
        until_s: float = math.inf,
    ) -> SolveResult:
        """An answer in a share of the time that is left, from a schedule that may break budgets.

        Parameters
        ----------
        until_s
            It has no longer than that, but for the least time of a solve.
        """
        options = self.options
        limit_s = min(self.clock.share_s(share), max(LEAST_SOLVE_S, until_s))
        solver = solver or self._solver_for(limit_s)
        request = Request(
            objective=options.objective,
            limits=replace(options.limits, time_limit_s=limit_s),
            seed=(options.seed + attempt) % (MAX_SEED + 1),
            start=start,
            on_progress=self.on_progress,
            on_better=self.note,
            solver=solver,
            backend=backend_for(solver, options.backend if solver == options.solver else None)
            or "",
            stop=self.stop,
        )
        result = answer(problem, request)
        self._note_result(result)
        return self._as_asked(result, solver)

    def _as_asked(self, result: SolveResult, solver: str) -> SolveResult:
        """The result of a solver that was taken in place of the one asked for, which is named first."""
        if solver == self.options.solver:
            return result
        return replace(result, solver=f"{self.options.solver} ({result.solver})")

    def tightened(
        self,
        margin: Mapping[str, int],
        attempt: int,
        last: SolveResult,
        until_processor_s: float = 0.0,
        until_s: float = math.inf,
    ) -> SolveResult | None:
        """An answer under budgets that are smaller by the margin, from the last one; None without.

        Parameters
        ----------
        until_processor_s
            By processor time; till then there is one although the time is up.
        until_s
            Seconds in which it has to begin.
        """
        is_late = not self.clock.may_retry and self.clock.source.process_s() >= until_processor_s
        if is_late or until_s <= 0 or self.stop.is_set():
            return None
        problem = with_smaller_budgets(self.problem, margin)
        if problem is None:
            return None
        share = _OVERLAPPED_RETRY_SHARE if self.is_overlapped else RETRY_SHARE
        result = self.again(problem, share, attempt + 1, last.schedule, until_s=until_s)
        return result if result.schedule is not None else None

    def lay_out(
        self, result: SolveResult, attempt: int, *, reserve_home: bool = False
    ) -> tuple[ArenaPlan, Mapping[str, int]]:
        """The layout of a result, and by how many bytes it exceeds which budgets."""
        assert result.schedule is not None
        seed = self.options.seed + attempt
        schedule = result.schedule
        effort = self.effort(len(schedule.steps))
        self._laid_out(schedule)
        arenas = plan_arenas(
            self.problem, schedule, effort=effort, seed=seed, reserve_home=reserve_home
        )
        return arenas, arenas.excess_bytes(self.problem.platform)

    def plan_passed(self, schedule: Schedule, known: SolveResult, effort: int) -> Plan:
        """The plan of a schedule on the way, whose layout may not fit, under the bound of what is known."""
        self._laid_out(schedule)
        arenas = plan_arenas(self.problem, schedule, effort=effort)
        value = self.passed[schedule]
        found = replace(known, status=Status.FEASIBLE, schedule=schedule, value=value)
        return Plan(self.problem, found, schedule, simulate(self.problem, schedule), arenas)

    def laid_out_in_streams(self, schedule: Schedule) -> None:
        """Count the work for the layouts of a schedule in streams."""
        self.clock.source.worked(_COUNTED_S_PER_STEP_IN_STREAMS * len(schedule.steps))

    def _laid_out(self, schedule: Schedule) -> None:
        """Count the work for one layout of a schedule."""
        self.clock.source.worked(_COUNTED_S_PER_STEP * len(schedule.steps))

    def effort(self, steps: int) -> int:
        """For the layout of a schedule of so many steps."""
        is_hurried = self.clock.left_s <= _UNHURRIED_S and steps >= LONG_STEPS
        return quick_effort(steps) if is_hurried else PACKING_EFFORT

    @property
    def until_given_up_s(self) -> float:
        """Seconds in which a plan has to be found before something else is tried."""
        limits = self.options.limits
        if not limits.gives_up:
            return math.inf
        return limits.give_up_share * limits.time_limit_s - self.clock.elapsed_s

    @property
    def is_overlapped(self) -> bool:
        """Whether devices and links run side by side."""
        return self.options.objective is Objective.MAKESPAN

    @property
    def is_resumable(self) -> bool:
        """Whether its solver improves on a schedule that it is given."""
        return self.options.solver in _RESUMABLE

    def is_open(self, plan: Plan) -> bool:
        """Whether there is time, and a solver of the search, to improve on an overlapped plan."""
        gap, options = plan.result.gap, self.options
        is_good = gap is not None and gap <= options.limits.gap_ratio
        has_time = self.clock.left_s > LEAST_SOLVE_S and not self.stop.is_set()
        return has_time and not is_good and self.is_resumable

    def finished(self, plan: Plan) -> Plan:
        """The plan with the savings that a solver of the search has left."""
        is_open = plan.result.status is not Status.OPTIMAL and self.is_resumable

        def is_over() -> bool:
            self._laid_out(plan.schedule)
            return self.stop.is_set() or self.clock.is_late

        return with_savings(plan, is_over) if is_open else plan

    def _solver_for(self, limit_s: float) -> str:
        """The best solver for a short time limit."""
        total_s = self.options.limits.time_limit_s
        if limit_s >= min(_WORTHWHILE_SHARE * total_s, _WORTHWHILE_S):
            return self.options.solver
        return "local-search" if self.is_resumable else "greedy"
