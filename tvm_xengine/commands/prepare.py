"""From a request to a planned training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from tvm_xengine.codegen.kernel_store import KernelStore, OnProgress
from tvm_xengine.commands.options import BudgetOptions, ModelOptions, Request
from tvm_xengine.compiler import (
    LoweredStep,
    lower_step,
    make_problem,
    measured_costs,
    with_measured_links,
)
from tvm_xengine.cost_models.measurements import MeasurementCache, default_cache_path
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.frontends.assemble import with_output, without_final_softmax
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planner import Plan, budgets_for_ratio, plan_schedule
from tvm_xengine.platform import Device, Link, Platform
from tvm_xengine.platform_file import read_platform
from tvm_xengine.problem import Problem, write_problem
from tvm_xengine.schedule import write_schedule
from tvm_xengine.solvers.result import Objective
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
    """Everything up to the schedule."""

    model: ForwardModel
    training: TrainingStep
    lowered: LoweredStep
    plan: Plan


def default_platform() -> Platform:
    """Two CPU devices: all cores with native features, and one thread of baseline x86-64."""
    return Platform(
        devices=(
            Device("cpu", "llvm -mcpu=native -num-cores=native"),
            Device("cpu_generic", "llvm -mcpu=x86-64"),
        ),
        links=(Link("cpu", "cpu_generic"), Link("cpu_generic", "cpu")),
    )


def prepare(request: Request, console: Console) -> PreparedStep:
    """Load, differentiate, lower, measure and plan what `request` asks for.

    Raises
    ------
    XEngineError
        When any stage refuses its input; nothing is written then.
    """
    prepared = prepare_problem(request, console)
    with console.status("solving") as status:
        plan = plan_schedule(
            prepared.problem, request.plan, lambda text: status.update(f"solving: {text}")
        )
    if request.output.schedule is not None:
        write_schedule(plan.schedule, request.output.schedule)
    return PreparedStep(prepared.model, prepared.training, prepared.lowered, plan)


def prepare_problem(request: Request, console: Console) -> PreparedProblem:
    """The same up to the problem, with the budgets that `request` asks for."""
    platform = _platform(request.budget)
    model = requested_model(request.model)
    training = build_training_step(model, seed=request.model.seed)
    with show_progress(console) as track:
        lowered = lower_step(training.mod, platform, track("lowering kernels"))
    problem = _with_budgets(_measure(request, lowered, platform, console), request.budget)
    _check_energy(problem, request.plan.objective)
    if request.output.problem is not None:
        write_problem(problem, request.output.problem)
    return PreparedProblem(model, training, lowered, problem)


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


def _check_energy(problem: Problem, objective: Objective) -> None:
    if objective is not Objective.ENERGY:
        return
    if not any(cost.energy_uj for costs in problem.costs.values() for cost in costs.values()):
        raise InvalidPlatformError(
            "--objective energy needs to know what devices draw: give them power_w in the platform"
            " file (and energy_nj_per_byte to the links)"
        )


def _platform(options: BudgetOptions) -> Platform:
    platform = default_platform() if options.platform is None else read_platform(options.platform)
    if unknown := [name for name in options.budgets if name not in platform.index]:
        raise InvalidPlatformError(
            f"--budget names {unknown}, but the platform has {list(platform.index)}"
        )
    return platform


def _measure(
    request: Request, lowered: LoweredStep, platform: Platform, console: Console
) -> Problem:
    cache = MeasurementCache(request.cache or default_cache_path())
    platform = with_measured_links(platform, cache)
    with show_progress(console) as track:
        costs = measured_costs(
            cache,
            on_progress=track("measuring kernels"),
            store=kernel_store(request),
            on_compiled=track("compiling kernels"),
        )
        return make_problem(lowered, platform, costs)


def kernel_store(request: Request) -> KernelStore:
    """The compiled kernels that lie beside the measurements."""
    return KernelStore((request.cache or default_cache_path()).parent / "kernels")


def _with_budgets(problem: Problem, options: BudgetOptions) -> Problem:
    budgets = dict(budgets_for_ratio(problem, options.ratio)) if options.ratio is not None else {}
    return problem.with_budgets({**budgets, **options.budgets})


@contextmanager
def show_progress(console: Console) -> Iterator[Callable[[str], OnProgress]]:
    """Bars, each of which appears with the first progress that is reported to it."""
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:

        def track(title: str) -> OnProgress:
            tasks: list[TaskID] = []

            def advance(done: int, total: int, _name: str) -> None:
                if not tasks:
                    tasks.append(progress.add_task(title))
                progress.update(tasks[0], completed=done, total=total)

            return advance

        yield track
