"""From a request to a planned training step."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_xengine.commands.options import BudgetOptions, ModelOptions, Request
from tvm_xengine.compile.links import with_measured_links
from tvm_xengine.compile.lower import LoweredStep, lower_step
from tvm_xengine.compile.options import Budgets, CompileOptions
from tvm_xengine.compile.plan import PlannedStep, plan_step
from tvm_xengine.compile.reporter import Reporter
from tvm_xengine.compile.stores import Stores
from tvm_xengine.frontends.assemble import with_output, without_final_softmax
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.report.summary import PlanSummary, summarize_plan
from tvm_xengine.scheduling.default_platform import default_platform
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.platform_file import read_platform
from tvm_xengine.scheduling.problem import write_problem
from tvm_xengine.scheduling.schedule import write_schedule
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.step import TrainingStep


@dataclass(frozen=True)
class LoweredRequest:
    """The model of a request, its training step, and that step as kernels."""

    model: ForwardModel
    training: TrainingStep
    lowered: LoweredStep
    stores: Stores


@dataclass(frozen=True)
class PreparedStep:
    """Everything up to the schedule."""

    model: ForwardModel
    training: TrainingStep
    planned: PlannedStep
    stores: Stores


def prepare(request: Request, reporter: Reporter) -> PreparedStep:
    """Load, differentiate, lower, cost and plan what `request` asks for.

    Raises
    ------
    XEngineError
        When any stage refuses its input; nothing is written then.
    """
    step = lower(request, reporter)
    planned = plan_step(step.lowered, compile_options(request), step.stores, reporter)
    if request.output.problem is not None:
        write_problem(planned.plan.problem, request.output.problem)
    if request.output.schedule is not None:
        write_schedule(planned.plan.schedule, request.output.schedule)
    return PreparedStep(step.model, step.training, planned, step.stores)


def lower(request: Request, reporter: Reporter) -> LoweredRequest:
    """Load the model of `request` and lower its training step for the platform."""
    platform = requested_platform(request.budget)
    model = requested_model(request.model)
    training = build_training_step(model, seed=request.model.seed)
    stores = Stores.open(compile_options(request))
    platform = with_measured_links(platform, stores.measurements)
    on_progress = reporter.stage("lowering kernels")
    lowered = lower_step(training.mod, platform, on_progress, tuned=stores.tuned)
    return LoweredRequest(model, training, lowered, stores)


def compile_options(request: Request) -> CompileOptions:
    """How `request` wants a step costed and planned."""
    return CompileOptions(
        request.costs, _budgets(request.budget), request.plan, request.cache, request.database
    )


def summarize(request: Request, prepared: PreparedStep) -> PlanSummary:
    """The summary of what was planned."""
    planned = prepared.planned
    return summarize_plan(
        request.model.model,
        prepared.model.batch_size,
        planned.plan,
        measured_kernels=planned.measured_kernels,
        all_kernels=len(planned.lowered.distinct),
        source_of=lambda op, device: planned.lowered.kernel(op, device).source,
    )


def requested_platform(options: BudgetOptions) -> Platform:
    """The platform of a request, which has every device that its budgets name."""
    platform = default_platform() if options.platform is None else read_platform(options.platform)
    _budgets(options).check(platform)
    return platform


def requested_model(options: ModelOptions) -> ForwardModel:
    """The forward model of a request; it returns logits, which cross-entropy expects."""
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
    if options.train is not None or options.freeze:
        model = model.with_trained(options.train, options.freeze)
    return without_final_softmax(model)


def _budgets(options: BudgetOptions) -> Budgets:
    return Budgets(options.ratio, options.budgets)
