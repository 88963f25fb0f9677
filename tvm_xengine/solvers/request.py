"""What a solver function is given besides the problem."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tvm_xengine.errors import InvalidScheduleError, UnsupportedProblemError
from tvm_xengine.scheduling.durations import format_amount
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.program import Look
from tvm_xengine.solvers.result import Limits, Objective, Scope, SolveResult, Status, StopReason

PROOF_RATIO = 1e-6
"""A value this close to a bound, relatively, counts as proven optimal: the tolerance of backends."""
MAX_SEED = 2**31 - 1
"""The largest seed that every backend takes."""
_GRACE_RATIO, _GRACE_S = 0.05, 0.5
"""How long after its time limit a solve may still look for budgets that work, or tidy its schedule: half of
what the time limit of a plan allows beyond it."""
WRITING_SHARE = 0.75
"""Of the time left, for writing a program: its rows are sorted, and handed to a backend, in the rest."""
_LEAST_REMAINING_S = 0.05
"""A time limit of nothing is none to a backend."""


class TimeIsUpError(Exception):
    """Ends what a solve is doing, once its time is up or it was interrupted; never leaves the solve."""


@dataclass(frozen=True)
class Request:
    """How to solve.

    Attributes
    ----------
    seed
        From 0 to `MAX_SEED`.
    start
        A schedule to improve on; None without one.
    on_progress
        Called with a sentence when there is news.
    on_better
        Called with the value and the schedule where one is better than those before; by the default
        portfolio and by what begins with it.
    solver, backend
        Names of the solver and of the backend that solves its programs.
    stop
        Once set, by any thread, the solve ends with the best schedule it knows.
    started
        What the clock of the limits said when the solve began; by default it says so now.
    """

    objective: Objective = Objective.COST
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    start: Schedule | None = None
    on_progress: Callable[[str], None] | None = None
    on_better: Callable[[float, Schedule], None] | None = None
    solver: str = "auto"
    backend: str = "highs"
    stop: threading.Event = field(default_factory=threading.Event)
    started: float = math.nan

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= MAX_SEED:
            raise ValueError(f"expected a seed from 0 to {MAX_SEED}, got {self.seed}")
        if math.isnan(self.started):
            object.__setattr__(self, "started", self.limits.clock.now_s())

    @property
    def elapsed_s(self) -> float:
        """Seconds of its clock since the solve began."""
        return self.limits.clock.now_s() - self.started

    @property
    def remaining_s(self) -> float:
        """What is left of the time limit, at least a little."""
        return max(_LEAST_REMAINING_S, self.limits.time_limit_s - self.elapsed_s)

    @property
    def is_over(self) -> bool:
        """Whether the time is up or the solve was interrupted."""
        return self.stop.is_set() or self.elapsed_s >= self.limits.time_limit_s

    def looking(self, share: float) -> Look:
        """To be called every few milliseconds by what may take a share of the time left from now on.

        It raises `TimeIsUpError` once that is over, or the solve was interrupted.
        """
        until_s = self.elapsed_s + share * self.remaining_s

        def look() -> None:
            if self.stop.is_set() or self.elapsed_s >= until_s:
                raise TimeIsUpError

        return look

    @property
    def is_late(self) -> bool:
        """Whether nothing may begin any more, after the time limit too."""
        return self.is_late_in(0.0)

    def is_late_in(self, seconds: float) -> bool:
        """Whether that will be so once something has taken so long."""
        until_s = (1 + _GRACE_RATIO) * self.limits.time_limit_s + _GRACE_S
        return self.stop.is_set() or self.elapsed_s + seconds > until_s

    def refuse_makespan(self, solver: str) -> None:
        """Raise `UnsupportedProblemError` where the objective is one that `solver` lacks."""
        if self.objective is Objective.MAKESPAN:
            raise UnsupportedProblemError(
                f"solver {solver} minimises cost or energy; use auto for the makespan"
            )

    def say(self, sentence: str) -> None:
        """Report progress."""
        if self.on_progress is not None:
            self.on_progress(sentence)

    def say_found(self, value: float, by: str) -> None:
        """Report a schedule that is better than those before."""
        self.say(f"{self.objective.value} {format_amount(value, self.objective.unit)} by {by}")

    def best_of(self, problem: Problem, schedules: Iterable[Schedule | None]) -> Schedule | None:
        """The first of the best schedules; None without a valid one."""
        valued = [(self.value_of(problem, one), one) for one in schedules]
        valid = [(value, one) for value, one in valued if value is not None]
        return min(valid, key=lambda pair: pair[0])[1] if valid else None

    def value_of(self, problem: Problem, schedule: Schedule | None) -> float | None:
        """The objective of `schedule`; None without one, or when the validator refuses it."""
        if schedule is None:
            return None
        try:
            return self.objective.of(simulate(problem, schedule))
        except InvalidScheduleError:
            return None


@dataclass(frozen=True)
class Proof:
    """A lower bound and the schedules it holds for.

    Attributes
    ----------
    is_infeasible
        Whether it is proven that there is no schedule of that scope at all.
    """

    bound: float
    scope: Scope = Scope.EVERY_SCHEDULE
    is_infeasible: bool = False

    def allows(self, value: float) -> bool:
        """Whether `value` may be that of a schedule of the proof's scope.

        One below the bound comes from a schedule outside, of which the proof says nothing.
        """
        return value >= self.bound - PROOF_RATIO * abs(value)

    def beside(self, value: float | None, floor: float) -> Proof:
        """This proof; where it does not allow `value`, the one that `floor` is a bound."""
        return self if value is None or self.allows(value) else Proof(floor)


def conclude(
    problem: Problem,
    request: Request,
    schedule: Schedule | None,
    proof: Proof,
    *,
    solver: str,
    message: str = "",
    model_value: float | None = None,
) -> SolveResult:
    """The validated result of a solve: what was found, and how good that provably is.

    A proof that no schedule of a narrower scope fits is no proof that none does, so only
    EVERY_SCHEDULE gives INFEASIBLE.
    """
    value = request.value_of(problem, schedule)
    if schedule is not None and value is None:
        message = f"{message}; its schedule was refused by the validator".lstrip("; ")
        schedule = None
    bound = proof.bound if math.isfinite(proof.bound) else 0.0
    if value is not None:
        bound = min(bound, value)
        is_proven = value - bound <= PROOF_RATIO * abs(value)
        status = Status.OPTIMAL if is_proven else Status.FEASIBLE
    elif proof.is_infeasible and proof.scope is Scope.EVERY_SCHEDULE:
        status = Status.INFEASIBLE
    else:
        status = Status.NO_SOLUTION
    stopped_by = _stop_reason(request, status, value, bound)
    if stopped_by is StopReason.INTERRUPTED:
        message = f"{message}; interrupted".lstrip("; ")
    return SolveResult(
        status=status,
        schedule=schedule,
        objective=request.objective,
        value=value,
        bound=bound,
        solve_s=request.elapsed_s,
        solver=solver,
        message=message,
        scope=proof.scope,
        stopped_by=stopped_by,
        model_value=model_value,
        is_by_work=request.limits.clock.counts_work,
    )


def _stop_reason(request: Request, status: Status, value: float | None, bound: float) -> StopReason:
    """What ended a solve with this outcome."""
    if status in (Status.OPTIMAL, Status.INFEASIBLE):
        return StopReason.PROOF
    if value is not None and 0.0 <= value - bound <= request.limits.gap_ratio * abs(value):
        return StopReason.GAP
    if request.stop.is_set():
        return StopReason.INTERRUPTED
    if not request.is_over:
        return StopReason.EXHAUSTED
    return StopReason.WORK if request.limits.clock.counts_work else StopReason.LIMIT
