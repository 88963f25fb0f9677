"""What a solve is asked for and what it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import Simulation
from tvm_xengine.solvers.time_source import MACHINE_TIME, CountedWork, TimeSource


class Objective(Enum):
    """What a solve minimises; each has its own unit and they are never mixed."""

    COST = "cost"  # sum of compute and transfer times, us
    MAKESPAN = "makespan"  # end of the last step when streams overlap, us
    ENERGY = "energy"  # sum of compute and transfer energy, uJ

    @property
    def unit(self) -> str:
        """``us`` or ``uJ``."""
        return "uJ" if self is Objective.ENERGY else "us"

    def of(self, simulation: Simulation) -> float:
        """This objective's value in `simulation`."""
        match self:
            case Objective.COST:
                return simulation.cost_us
            case Objective.MAKESPAN:
                return simulation.makespan_us
            case Objective.ENERGY:
                return simulation.energy_uj


class Status(Enum):
    """What a solver knows at its end."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"  # a limit was hit; `schedule` is the best one found
    INFEASIBLE = "infeasible"  # proven: no schedule fits the budgets
    NO_SOLUTION = "no solution"  # a limit was hit before any schedule was found


class StopReason(Enum):
    """What ended a solve."""

    PROOF = "proof"  # optimal, or infeasible, for certain
    GAP = "gap"  # the gap asked for was proven
    LIMIT = "time limit"
    WORK = "work limit"
    INTERRUPTED = "interrupted"
    EXHAUSTED = "exhausted"  # the solver has nothing left to try, as heuristics

    @property
    def is_limit(self) -> bool:
        """Whether more time or work might have led to a better answer."""
        return self in (StopReason.LIMIT, StopReason.WORK)


class Scope(Enum):
    """The schedules among which a bound, and so OPTIMAL or INFEASIBLE, holds."""

    EVERY_SCHEDULE = "every schedule"
    GIVEN_ORDER = "schedules that first run the ops in the graph's order"
    STAGE_MODEL = "schedules of the solver's stage model; its message says which"

    @property
    def words(self) -> str:
        """The schedules, and whether others may be better, as the end of a sentence."""
        schedules = self.value.partition(";")[0]
        match self:
            case Scope.EVERY_SCHEDULE:
                return schedules
            case Scope.GIVEN_ORDER:
                return f"{schedules}; another order may be better"
            case Scope.STAGE_MODEL:
                return f"{schedules}; others may be better"


@dataclass(frozen=True)
class Limits:
    """When a solve stops.

    Attributes
    ----------
    time_limit_s
        By `clock`, > 0.
    gap_ratio
        Stop as soon as (value - bound) / value is at most this.
    give_up_share
        ``auto`` stops after this share of the time limit if it has no schedule by then. With less than 1
        no budgets are looked for that work: who gives up has something else to try.
    poor_share, good_ratio
        It stops after this share, too, if it has none by then whose value is at most so many times the
        bound that is known before the search.
    clock
        The wall clock, or work that is counted (:meth:`by_work`).
    """

    time_limit_s: float = 60.0
    gap_ratio: float = 0.0
    give_up_share: float = 1.0
    poor_share: float = 1.0
    good_ratio: float = math.inf
    clock: TimeSource = MACHINE_TIME

    @property
    def gives_up(self) -> bool:
        """Whether ``auto`` gives up early where it has no schedule."""
        return self.give_up_share < 1

    @classmethod
    def of(cls, time_limit_s: float, gap_ratio: float, work_limit: float | None) -> Limits:
        """Limits by work where there is a work limit, else by time."""
        return (
            cls(time_limit_s, gap_ratio)
            if work_limit is None
            else cls.by_work(work_limit, gap_ratio)
        )

    @classmethod
    def by_work(cls, units: float, gap_ratio: float = 0.0) -> Limits:
        """Limits that end a solve after so much work: the same answer however fast or busy the machine is.

        A unit is about a second; search and proofs take turns and have as much each. The stage model,
        which cannot be ended by counted work, is left out.
        """
        if not (0 < units < math.inf):
            raise ValueError(f"work_limit must be > 0 and finite, got {units}")
        return cls(units, gap_ratio, clock=CountedWork())

    def __post_init__(self) -> None:
        if not (0 < self.time_limit_s < math.inf):
            raise ValueError(f"time_limit_s must be > 0 and finite, got {self.time_limit_s}")
        if not (0 <= self.gap_ratio < 1):
            raise ValueError(f"gap_ratio must be in [0, 1), got {self.gap_ratio}")
        for name in ("give_up_share", "poor_share"):
            if not (0 < getattr(self, name) <= 1):
                raise ValueError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        if not self.good_ratio >= 1:
            raise ValueError(f"good_ratio must be at least 1, got {self.good_ratio}")


@dataclass(frozen=True)
class BudgetDiagnosis:
    """Why budgets are too small, and which ones work.

    Attributes
    ----------
    working_budget_bytes
        Budgets of all devices for which a schedule was found, close to the asked ones; None
        when none was found.
    working_set_bytes
        For each device, the smallest budget below which some op certainly cannot run there.
    binding
        A sentence that names the op and device that bind.
    working_schedule
        The schedule that was found for `working_budget_bytes`; its address layout may need more.
    """

    working_budget_bytes: Mapping[str, int] | None
    working_set_bytes: Mapping[str, int]
    binding: str
    working_schedule: Schedule | None = None


_NEWS_RATIO = 0.005
"""Of the value. A bound for fewer schedules that is higher by less is not worth a sentence."""


@dataclass(frozen=True)
class SolveResult:
    """The answer of every solver.

    Attributes
    ----------
    status
        What is known at the end.
    schedule
        The best schedule found, accepted by the validator; None when there is none.
    objective
        What was minimised; gives `value` and `bound` their unit (us, or uJ for energy).
    value
        Objective of `schedule`; None without one.
    bound
        Proven lower bound on the objective; never above `value`.
    solve_s
        Wall clock; units of work if `is_by_work`.
    solver
        Name of what found the schedule.
    message
        What a person should know: what was tried, clamped or not available.
    diagnosis
        Set when no schedule was found, unless the solve was interrupted.
    scope
        Which schedules the bound holds for.
    order_bound
        Proven lower bound for schedules that first run the ops in the graph's order; 0 without one.
    stopped_by
        What ended the solve.
    model_value
        Objective of the first solution of a published program whose schedule cannot be executed;
        `value` is then that of the best one that can. None otherwise.
    is_by_work
        Whether work was counted in place of time.
    """

    status: Status
    schedule: Schedule | None
    objective: Objective
    value: float | None
    bound: float
    solve_s: float
    solver: str
    message: str = ""
    diagnosis: BudgetDiagnosis | None = None
    scope: Scope = Scope.EVERY_SCHEDULE
    order_bound: float = 0.0
    stopped_by: StopReason = StopReason.EXHAUSTED
    model_value: float | None = None
    is_by_work: bool = False

    def __post_init__(self) -> None:
        has_schedule = self.status in (Status.OPTIMAL, Status.FEASIBLE)
        if (self.schedule is not None) != has_schedule or (self.value is not None) != has_schedule:
            raise ValueError(f"status {self.status.name} does not fit the schedule it comes with")
        if not math.isfinite(self.bound):
            raise ValueError(f"bound must be finite (clamp it), got {self.bound}")

    @property
    def gap(self) -> float | None:
        """(value - bound) / value: 0 when proven optimal; None without a schedule or a bound."""
        if self.value is None or self.bound <= 0 < self.value:
            return None
        return max(0.0, (self.value - self.bound) / self.value) if self.value > 0 else 0.0

    @property
    def order_gap(self) -> float | None:
        """(value - order_bound) / value; None where it is no news beside `gap`.

        The order of first runs is open in a bound for every schedule, which may be far lower at small
        budgets. A value below the bound is that of a schedule in another order.
        """
        if self.value is None or self.scope is not Scope.EVERY_SCHEDULE:
            return None
        if not self.bound + _NEWS_RATIO * self.value < self.order_bound <= self.value:
            return None
        return (self.value - self.order_bound) / self.value
