"""From a request to a planned training step."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from tvm_xengine.commands.costing import (
    costed_problem,
    plan_for,
    plan_with_active_costs,
    requested_platform,
    tuned_schedules,
    with_measured_choice,
)
from tvm_xengine.commands.options import CostChoice, ModelOptions, Request
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.compile.pipeline import LoweredStep, lower_step
from tvm_xengine.frontends.assemble import with_output, without_final_softmax
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.planner import Plan
from tvm_xengine.report.summary import PlanSummary, summarize_plan
from tvm_xengine.scheduling.problem import Problem, write_problem
from tvm_xengine.scheduling.schedule import write_schedule
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.step import TrainingStep


@dataclass(frozen=True)
class PreparedProblem:
    """Everything up to the problem."""

    model: ForwardModel
    training: TrainingStep
    lowered: LoweredStep
    problem: Problem


@dataclass(frozen=True)
class PreparedStep:
    """Everything up to the schedule.

    Attributes
    ----------
    measured_kernels
        How many kernels' costs were measured for the plan, now or before.
    """

    model: ForwardModel
    training: TrainingStep
    lowered: LoweredStep
    plan: Plan
    measured_kernels: int


def prepare(request: Request, console: Console) -> PreparedStep:
    """Load, differentiate, lower, measure and plan what `request` asks for.

    Raises
    ------
    XEngineError
        When any stage refuses its input; nothing is written then.
    """
    model, training, lowered = lower(request, console)
    if request.costs is CostChoice.ACTIVE:
        active = plan_with_active_costs(request, lowered, console)
        plan, measured = active.plan, active.measured_kernels
    else:
        lowered = with_measured_choice(request, lowered, console)
        problem = costed_problem(request, lowered, console)
        plan = plan_for(request, problem, console)
        measured = len(lowered.symbols) if request.costs is CostChoice.MEASURED else 0
    if request.output.problem is not None:
        write_problem(plan.problem, request.output.problem)
    if request.output.schedule is not None:
        write_schedule(plan.schedule, request.output.schedule)
    return PreparedStep(model, training, lowered, plan, measured)


def prepare_problem(request: Request, console: Console) -> PreparedProblem:
    """The same up to the problem, with the budgets that `request` asks for."""
    model, training, lowered = lower(request, console)
    lowered = with_measured_choice(request, lowered, console)
    problem = costed_problem(request, lowered, console)
    if request.output.problem is not None:
        write_problem(problem, request.output.problem)
    return PreparedProblem(model, training, lowered, problem)


def summarize(request: Request, prepared: PreparedStep) -> PlanSummary:
    """The summary of what was planned."""
    return summarize_plan(
        request.model.model,
        prepared.model.batch_size,
        prepared.plan,
        measured_kernels=prepared.measured_kernels,
        all_kernels=len(prepared.lowered.symbols),
        source_of=lambda op, device: prepared.lowered.kernel(op, device).source,
    )


def lower(request: Request, console: Console) -> tuple[ForwardModel, TrainingStep, LoweredStep]:
    """The model that is meant, its training step, and that step as kernels for the platform."""
    platform = requested_platform(request.budget)
    model = requested_model(request.model)
    training = build_training_step(model, seed=request.model.seed)
    with show_progress(console) as track:
        lowered = lower_step(
            training.mod, platform, track("lowering kernels"), tuned=tuned_schedules(request)
        )
    return model, training, lowered


def requested_model(options: ModelOptions) -> ForwardModel:
    """The forward model that is meant; it returns logits, which cross-entropy expects."""
    model = load_model(
        options.model,
        batch_size=options.batch_size,
        size=options.size,
        num_classes=options.num_classes,
        draw_weights=options.draw_weights,
        seed=options.seed,
    )
    if options.output is not None:
        model = with_output(model, options.output)
    return without_final_softmax(model)
