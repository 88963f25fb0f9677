"""Plan several training steps under one budget per device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.lean.forms import LESS_RATIO, forms
from tvm_xengine.compiler.options import Budgets
from tvm_xengine.compiler.plan import plan_costed
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.shared_budget import (
    SharedMemory,
    Sizes,
    no_room_message,
    room_beside_others,
    same_platform,
    shared_memory,
    shared_ratio,
    smallest_transient,
)
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes
from tvm_xengine.session.stages.budgets import BudgetLike, budgets_of
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.plan import StepPlan
from tvm_xengine.session.stages.plan_options import plan_options
from tvm_xengine.session.stages.problem import StepProblem
from tvm_xengine.solvers.result import Limits


@dataclass(frozen=True)
class PlansTogether:
    """The plans of several training steps that run in turns on one machine.

    Attributes
    ----------
    plans
        By the names of the steps. The budgets of each are what the state of the others leaves.
    memory
        What they take of each device together.
    """

    plans: Mapping[str, StepPlan]
    memory: tuple[SharedMemory, ...]

    def report(self) -> str:
        """Memory of each device, and what sharing it saves, in lines."""
        lines = []
        for one in self.memory:
            if not one.arena_bytes:
                continue
            state = ", ".join(f"{n} {format_bytes(size)}" for n, size in one.state_bytes.items())
            budget = one.budget_bytes
            limit = "" if budget == UNLIMITED_BYTES else f" of {format_bytes(budget)}"
            lines.append(
                f"{one.device}: {format_bytes(one.arena_bytes)}{limit}: state {state}, used in"
                f" turns {format_bytes(one.shared_bytes)}"
                f" ({format_bytes(one.apart_bytes)} in arenas of their own)"
            )
        return "\n".join(lines)


@checked
def plan_together(
    problems: Mapping[str, StepProblem],
    budget: BudgetLike | Budgets = None,
    *,
    time_limit_s: float = 60.0,
    gap_ratio: float = 0.01,
    objective: str = "cost",
    solver: str = "auto",
    backend: str | None = None,
    seed: int = 0,
    work_limit: float | None = None,
) -> PlansTogether:
    """Plan several training steps for one machine, on which they run in turns.

    The state of each (parameters, optimizer state, statistics) stays on its home device all the time.
    For everything else all steps use the same bytes, since it holds nothing between steps. So each is
    planned under the budget less the state of the others.

    Parameters
    ----------
    problems
        By names of your choice; all for the same platform.
    budget
        Of each device for all steps together, as in `compile`; a ratio is of the largest rest that
        keep-all takes beyond the state. None takes the budgets of the problems, which must agree.
    time_limit_s
        Of all solves together, each has an equal share.
    gap_ratio, objective, solver, backend, seed
        As in `plan`.
    work_limit
        As in `plan`; of all solves together.

    Raises
    ------
    InvalidPlatformError
        If the platforms differ.
    NoScheduleError
        If they do not fit together; the message says what each needs.
    """
    if not problems:
        raise ValueError("expected at least one problem to plan, got none")
    share = None if work_limit is None else work_limit / len(problems)
    limits = Limits.of(time_limit_s / len(problems), gap_ratio, share)
    options = plan_options(objective, solver, backend, limits, seed)
    given = {name: problem.costed for name, problem in problems.items()}
    costed = _under(given, budget)
    plain = {name: one.problem for name, one in costed.items()}
    platform = same_platform({name: problem.platform for name, problem in plain.items()})
    budgets = {device.name: device.budget_bytes for device in platform.devices}
    rooms = room_beside_others(plain, budgets)
    plans: dict[str, StepPlan] = {}
    for name, problem in problems.items():
        lowered, room = (
            problem.lowered,
            costed[name].with_budgets(Budgets(device_bytes=rooms[name])),
        )
        apart = replace(room, problem=replace(room.problem, state_apart=True))
        try:
            planned = plan_costed(apart, options, lowered.stores, lowered.reporter)
        except NoScheduleError as error:
            smallest = {
                other: _smallest(one, problems[other].lowered) for other, one in costed.items()
            }
            raise NoScheduleError(no_room_message(name, plain, budgets, smallest)) from error
        plans[name] = StepPlan(lowered, planned)
    memory = shared_memory(
        platform, {name: (one.plan.problem, one.plan.arenas) for name, one in plans.items()}
    )
    _check_within(memory)
    return PlansTogether(plans, memory)


def _under(
    costed: Mapping[str, CostedStep], budget: BudgetLike | Budgets
) -> Mapping[str, CostedStep]:
    """The steps under the budget of all."""
    platform = next(iter(costed.values())).problem.platform
    asked = budget if isinstance(budget, Budgets) else budgets_of(budget, platform)
    sizes = dict(asked.device_bytes)
    if asked.ratio is not None:
        plain = {name: one.problem for name, one in costed.items()}
        sizes = {**shared_ratio(plain, asked.ratio), **sizes}
    budgets = Budgets(device_bytes=sizes)
    return {name: one.with_budgets(budgets) for name, one in costed.items()}


def _smallest(costed: CostedStep, lowered: Lowered) -> Sizes | None:
    """The smallest memory beyond its state in which a step is known to run, in slices of its batch, too."""
    best: Sizes | None = None
    for form in forms(costed, lowered.stores, lowered.reporter):
        found = smallest_transient(form.problem)
        if found is None:
            continue
        if best is not None and sum(found.values()) > LESS_RATIO * sum(best.values()):
            break
        best = found
    return best


def _check_within(memory: tuple[SharedMemory, ...]) -> None:
    """Refuse plans whose kernels were changed to ones with more constants than were counted.

    Raises
    ------
    NoScheduleError
        If the plans take more than a budget.
    """
    for one in memory:
        if one.arena_bytes > one.budget_bytes:
            excess = format_bytes(one.arena_bytes - one.budget_bytes)
            raise NoScheduleError(
                f"the plans take {excess} more than the budget of {one.device}; raise it by so much"
            )
