"""A plan from a saved or hand-written schedule."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.lean.kernels import with_variants
from tvm_xengine.compiler.lean.slices import costed_in_slices, form_running
from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.compiler.plan_kernels import PlannedStep
from tvm_xengine.compiler.prepared import PreparedKernels
from tvm_xengine.errors import BudgetExceededError
from tvm_xengine.planning.given_schedule import plan_given_schedule
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.schedule import Compute, Schedule, read_schedule
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.plan import StepPlan
from tvm_xengine.session.stages.problem import StepProblem


@checked
def plan_of_schedule(
    problem: StepProblem, schedule: Schedule | str | Path, name: str = "the schedule"
) -> StepPlan:
    """The plan that runs a schedule, which is checked against every rule of the problem.

    Parameters
    ----------
    problem
        What the schedule is for, with its budgets.
    schedule
        Or a file of one. Without any frees it gets the earliest ones.
    name
        Name of the schedule in messages, where it is no file.

    Raises
    ------
    InvalidScheduleError
        Naming the first step that breaks a rule of the problem, a budget or a constraint.
    """
    where = name if isinstance(schedule, Schedule) else str(schedule)
    found = schedule if isinstance(schedule, Schedule) else read_schedule(schedule)
    costed, plan = _planned(problem, found, where)
    measured = len(costed.lowered.distinct) if costed.choice is CostChoice.MEASURED else 0
    return StepPlan(problem.lowered, PlannedStep(costed.lowered, plan, measured))


def _planned(problem: StepProblem, schedule: Schedule, where: str) -> tuple[CostedStep, Plan]:
    """The plan of a schedule, and the step with the variants that it takes."""
    lowered = problem.lowered
    costed = _in_slices_of(schedule, problem.costed, lowered)
    if not any(isinstance(step, Compute) and step.variant for step in schedule.steps):
        try:
            return costed, plan_given_schedule(costed.problem, schedule, where)
        except BudgetExceededError:
            offering = with_variants(costed, lowered.stores, lowered.reporter)
            if offering is costed:
                raise
    else:
        offering = with_variants(costed, lowered.stores, lowered.reporter)
    return offering, plan_given_schedule(offering.problem, schedule, where)


def _in_slices_of(schedule: Schedule, costed: CostedStep, lowered: Lowered) -> CostedStep:
    """The step in the number of slices whose ops a schedule runs; whole where there is none."""
    prepared = PreparedKernels(costed.lowered.platform, lowered.stores.tuned)
    parts = form_running(schedule, costed.offered, prepared).slices
    if parts == 1:
        return costed
    sliced = costed_in_slices(costed, parts, lowered.stores, lowered.reporter)
    assert sliced is not None
    return sliced
