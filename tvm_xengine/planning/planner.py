"""From a problem to a schedule whose address layout fits every budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tvm_xengine.errors import InvalidProblemError, InvalidScheduleError, NoScheduleError
from tvm_xengine.scheduling.arena.plan import ArenaPlan, plan_arenas
from tvm_xengine.scheduling.graph import MAX_BYTES
from tvm_xengine.scheduling.platform import UNLIMITED_BYTES
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, with_frees
from tvm_xengine.scheduling.simulate import Simulation, simulate
from tvm_xengine.solvers.result import Limits, Objective, SolveResult, Status
from tvm_xengine.solvers.solve import solve

MAX_TIGHTENINGS = 10
"""How often a schedule is asked for again because its address layout did not fit."""


_FAR_RATIO = 1.1
"""A second plan that costs so many times the first is too far off: it gets the whole time limit."""


@dataclass(frozen=True)
class Plan:
    """A schedule with everything that is known about it.

    Attributes
    ----------
    problem
        With the budgets that were asked for.
    result
        The solver's answer; its bound holds for `problem`.
    simulation, arenas
        Of the result's schedule.
    """

    problem: Problem
    result: SolveResult
    schedule: Schedule
    simulation: Simulation
    arenas: ArenaPlan


@dataclass(frozen=True)
class PlanOptions:
    """How to look for a schedule; see `tvm_xengine.solvers.solve`."""

    solver: str = "auto"
    objective: Objective = Objective.COST
    limits: Limits = field(default_factory=Limits)
    seed: int = 0


def plan_schedule(
    problem: Problem,
    options: PlanOptions,
    on_progress: Callable[[str], None] | None = None,
    *,
    start: Schedule | None = None,
) -> Plan:
    """The best schedule that was found whose ARENAS fit the budgets of `problem`.

    Solvers count live bytes; an address layout may need more. Where it does, the solver is
    asked again with budgets that are smaller by the excess, in the time that is left or a
    quarter of the limit, and in the whole limit where that ends far from the first answer. The
    bound of the first answer is kept, because only that one holds for the budgets asked for.

    Parameters
    ----------
    start
        A schedule to begin from, such as that of a plan with other costs. Where its arenas fit,
        no worse one is returned.

    Raises
    ------
    NoScheduleError
        With the solver's advice: what budget is known to work, and what binds.
    """
    question = _Question(problem, options, start, on_progress)
    first = question.solve(problem, options.limits, options.seed)
    if first.schedule is None:
        raise NoScheduleError(_no_schedule_message(problem, first))
    known = _known_plan(question, first)
    try:
        found = _plan_with_arenas(question, first)
    except NoScheduleError:
        if known is None:
            raise
        return known
    value = options.objective.of
    return known if known and value(known.simulation) < value(found.simulation) else found


@dataclass(frozen=True)
class _Question:
    """What is asked for, and since when."""

    problem: Problem
    options: PlanOptions
    start: Schedule | None
    on_progress: Callable[[str], None] | None
    begun_s: float = field(default_factory=time.monotonic)

    def solve(self, problem: Problem, limits: Limits, seed: int) -> SolveResult:
        """The answer for other budgets, perhaps."""
        return solve(
            problem,
            self.options.solver,
            objective=self.options.objective,
            limits=limits,
            seed=seed,
            start=self.start,
            on_progress=self.on_progress,
        )


def _known_plan(question: _Question, first: SolveResult) -> Plan | None:
    """The schedule to begin from; None where it breaks a rule of the problem or does not fit."""
    problem, options, schedule = question.problem, question.options, question.start
    if schedule is None:
        return None
    try:
        simulation = simulate(problem, schedule)
    except InvalidScheduleError:
        return None
    arenas = plan_arenas(problem, schedule, seed=options.seed)
    if _excess_bytes(problem, arenas):
        return None
    value = options.objective.of(simulation)
    result = replace(first, schedule=schedule, value=value, solver=f"{options.solver} (start)")
    return Plan(problem, _for_asked_budgets(first, result), schedule, simulation, arenas)


def _plan_with_arenas(question: _Question, first: SolveResult) -> Plan:
    """The first answer, or one for smaller budgets, whose layout fits the budgets asked for."""
    assert first.schedule is not None
    problem, seed = question.problem, question.options.seed
    result, schedule = first, first.schedule
    margin: dict[str, int] = {}
    share = 1.0  # of the margin that is taken off the budgets
    for attempt in range(MAX_TIGHTENINGS):
        arenas = plan_arenas(problem, schedule, seed=seed + attempt)
        excess = _excess_bytes(problem, arenas)
        if not excess:
            simulation = simulate(problem, schedule)
            return Plan(problem, _for_asked_budgets(first, result), schedule, simulation, arenas)
        for name in {*margin, *excess}:
            margin[name] = int(share * margin.get(name, 0)) + excess.get(name, 0)
        result, share = _solve_with_margin(question, first, margin, attempt)
        assert result.schedule is not None
        schedule = result.schedule
    raise NoScheduleError(
        "schedules were found whose live bytes fit the budgets, but none whose address layout does:"
        f" the best one exceeds them by {excess} bytes. Raise the budgets by that much"
    )


def _excess_bytes(problem: Problem, arenas: ArenaPlan) -> dict[str, int]:
    """By how much arenas are larger than the budgets of their devices."""
    return {
        device.name: arenas.arena_bytes[device.name] - device.budget_bytes
        for device in problem.platform.devices
        if arenas.arena_bytes[device.name] > device.budget_bytes
    }


def _solve_with_margin(
    question: _Question, first: SolveResult, margin: Mapping[str, int], attempt: int
) -> tuple[SolveResult, float]:
    """An answer for budgets that are smaller by the margin, or by the largest share that works."""
    problem, limits = question.problem, question.options.limits
    seed = question.options.seed + attempt + 1
    share = 1.0
    while True:
        left_s = limits.time_limit_s - (time.monotonic() - question.begun_s)
        again = replace(limits, time_limit_s=max(left_s, limits.time_limit_s / 4))
        tightened = problem.with_budgets(
            {
                name: max(1, problem.platform.device(name).budget_bytes - int(share * size))
                for name, size in margin.items()
            }
        )
        try:
            result = question.solve(tightened, again, seed)
        except InvalidProblemError:  # some state is larger than the tightened budget
            result = None
        if result is not None and result.schedule is not None:
            if again != limits and _is_far(result, first):
                better = replace(question, start=result.schedule)
                result = better.solve(tightened, limits, seed)
            return result, share
        share /= 2
        if share < 1 / 16:
            raise NoScheduleError(
                "schedules were found whose live bytes fit the budgets, but their address layouts"
                f" need about {dict(margin)} bytes more, and nothing was found with that margin."
                " Raise the budgets by that much"
            )


def _is_far(result: SolveResult, first: SolveResult) -> bool:
    """Whether a little less memory seems to cost so much that time was too short."""
    if result.value is None or first.value is None:
        return False
    return result.value > _FAR_RATIO * first.value


def keep_everything(problem: Problem, device: str) -> tuple[Problem, Schedule]:
    """The step that keeps every tensor until its last use, all on one device.

    Returns
    -------
    problem, schedule
        The problem with its state at home on `device` and no budget, and its schedule.

    Raises
    ------
    ValueError
        If some op cannot run on `device`.
    """
    missing = [op.name for op in problem.graph.ops if not problem.can_run(op.name, device)]
    if missing:
        raise ValueError(f"{device} cannot run {missing}, so it cannot run the whole step")
    platform = problem.platform.with_budgets(
        {other.name: UNLIMITED_BYTES for other in problem.platform.devices}
    )
    alone = replace(problem, platform=platform, home=dict.fromkeys(problem.home, device))
    return alone, with_frees(alone, [Compute(op.name, device) for op in problem.graph.ops])


def budgets_for_ratio(problem: Problem, ratio: float) -> Mapping[str, int]:
    """Budget of each computing device: resident state plus `ratio` of the rest.

    The rest is what the arena of keeping everything on that device needs beyond the resident
    state. Devices that cannot run the whole step keep their budget.
    """
    if not ratio >= 0:
        raise ValueError(f"the budget ratio must be >= 0, got {ratio}")
    resident_bytes = sum(problem.home_bytes.values())
    budgets = {}
    for device in problem.platform.computing:
        if all(problem.can_run(op.name, device.name) for op in problem.graph.ops):
            alone, schedule = keep_everything(problem, device.name)
            arena_bytes = plan_arenas(alone, schedule).arena_bytes[device.name]
            rest_bytes = arena_bytes - resident_bytes
            wanted_bytes = resident_bytes + ratio * rest_bytes
            budgets[device.name] = int(min(wanted_bytes, MAX_BYTES))
    return budgets


def _for_asked_budgets(first: SolveResult, last: SolveResult) -> SolveResult:
    """The last answer, with the bound that was proven for the budgets asked for."""
    if last is first:
        return last
    assert last.value is not None
    bound = min(first.bound, last.value)
    proven = last.status is Status.OPTIMAL and last.value <= first.bound * (1 + 1e-9)
    message = "budgets were tightened, because an address layout needed more than the peak"
    return replace(
        last,
        bound=bound,
        status=Status.OPTIMAL if proven else Status.FEASIBLE,
        message=f"{last.message}; {message}" if last.message else message,
    )


def _no_schedule_message(problem: Problem, result: SolveResult) -> str:
    asked = {device.name: device.budget_bytes for device in problem.platform.devices}
    lines = [f"{result.status.value} under the budgets {asked} ({result.message})"]
    if result.advice is not None:
        lines.append(result.advice.binding)
        lines.append(f"no smaller than the working set: {dict(result.advice.working_set_bytes)}")
        if result.advice.working_budget_bytes is not None:
            lines.append(f"these budgets work: {dict(result.advice.working_budget_bytes)}")
    return "; ".join(line for line in lines if line)
