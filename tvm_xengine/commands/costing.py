"""Costs for what a request asks for: measured, predicted, or measured where it matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from tvm_xengine.commands.options import BudgetOptions, CostChoice, Request
from tvm_xengine.commands.platforms import default_platform
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.compile.kernel_choice import with_fastest_kernels
from tvm_xengine.compile.pipeline import (
    KernelCosts,
    LoweredStep,
    make_problem,
    measured_costs,
    with_measured_links,
)
from tvm_xengine.cost_models.active import ActivePlan, Costs, Planning, plan_actively
from tvm_xengine.cost_models.measure.fingerprint import device_fingerprint
from tvm_xengine.cost_models.measure.measurements import (
    MeasurementCache,
    default_cache_path,
)
from tvm_xengine.cost_models.models.processors import processor_of
from tvm_xengine.cost_models.prediction.correction import Correction
from tvm_xengine.cost_models.prediction.predict import (
    default_model,
    predict_costs,
    predict_to_correct,
)
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels
from tvm_xengine.kernels.store.kernel_store import KernelStore, OnProgress
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.planning.planner import Plan, budgets_for_ratio, plan_schedule
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.platform_file import read_platform
from tvm_xengine.scheduling.problem import CostSource, Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.result import Objective

if TYPE_CHECKING:
    from tvm_xengine.cost_models.models.model_file import ModelFile

_SKETCH_S = 10.0
"""Longest solve in a round of the active loop."""


def requested_platform(options: BudgetOptions) -> Platform:
    """The platform that is meant, whose devices the budgets must name."""
    platform = default_platform() if options.platform is None else read_platform(options.platform)
    if unknown := [name for name in options.budgets if name not in platform.index]:
        raise InvalidPlatformError(
            f"--budget names {unknown}, but the platform has {list(platform.index)}"
        )
    return platform


def kernel_store(request: Request) -> KernelStore:
    """The compiled kernels that lie beside the measurements."""
    return KernelStore((request.cache or default_cache_path()).parent / "kernels")


def with_measured_choice(request: Request, lowered: LoweredStep, console: Console) -> LoweredStep:
    """The step with the faster kernel where a device leaves the choice, when costs are measured."""
    if request.costs is not CostChoice.MEASURED:
        return lowered
    with show_progress(console) as track:
        costs = measured_kernel_costs(request, track)
        return with_fastest_kernels(lowered, costs, tuned_schedules(request))


def costed_problem(request: Request, lowered: LoweredStep, console: Console) -> Problem:
    """The problem with the budgets that are asked for; what is measured is measured before."""
    platform = with_measured_links(lowered.platform, _cache(request))
    with show_progress(console) as track:
        costs: KernelCosts
        match request.costs:
            case CostChoice.MEASURED:
                costs = measured_kernel_costs(request, track)
            case CostChoice.PREDICTED:
                costs = lambda kernels: _predicted(kernels, console)[0]  # noqa: E731
            case _:
                costs = lambda kernels: predict_costs(kernels, None)  # noqa: E731
        problem = make_problem(lowered, platform, costs)
    problem = problem.with_budgets(_budgets(problem, request.budget))
    _check_energy(problem, request.plan.objective)
    return problem


def plan_for(
    request: Request, problem: Problem, console: Console, start: Schedule | None = None
) -> Plan:
    """The plan, with the solver that is asked for, perhaps from a schedule to begin from."""
    with console.status("solving") as status:
        return plan_schedule(
            problem,
            request.plan,
            lambda text: status.update(f"solving: {text}"),
            start=start,
        )


def plan_with_active_costs(request: Request, lowered: LoweredStep, console: Console) -> ActivePlan:
    """The plan whose costs were measured where it relies on them."""
    cache = _cache(request)
    platform = with_measured_links(lowered.platform, cache)
    kernels = {kernel.symbol: kernel for kernel in lowered.kernels.values()}
    budgets: dict[str, int] = {}

    def problem_with(costs: Costs) -> Problem:
        problem = make_problem(lowered, platform, lambda _: costs)
        if not budgets:
            budgets.update(_budgets(problem, request.budget))
        _check_energy(problem, request.plan.objective)
        return problem.with_budgets(budgets)

    def measure(wanted: Sequence[DeviceKernel]) -> Costs:
        with show_progress(console) as track:
            return measured_kernel_costs(request, track)(wanted)

    def sketch(problem: Problem, start: Schedule | None) -> Plan:
        limit_s = min(_SKETCH_S, request.plan.limits.time_limit_s / 2)
        limits = replace(
            request.plan.limits,
            time_limit_s=limit_s,
            gap_ratio=max(0.01, request.plan.limits.gap_ratio),
        )
        quick = replace(request, plan=replace(request.plan, limits=limits))
        return plan_for(quick, problem, console, start)

    planning = Planning(
        kernels=kernels,
        kernel_of=lambda op, device: lowered.kernel(op, device).symbol,
        problem_with=problem_with,
        sketch=sketch,
        plan=lambda problem, start: plan_for(request, problem, console, start),
        measure=measure,
    )
    predicted, correction = _predicted(list(kernels.values()), console)
    if correction is not None:
        planning = replace(planning, correct=correction.corrected)
    known = [
        kernel
        for kernel in kernels.values()
        if cache.find(kernel.key, device_fingerprint(kernel.target)) is not None
    ]
    return plan_actively(planning, {**predicted, **(measure(known) if known else {})})


def tuned_schedules(request: Request) -> TunedSchedules | None:
    """The schedules that generated kernels may take."""
    return None if request.database is None else TunedSchedules(request.database)


def measured_kernel_costs(request: Request, track: Callable[[str], OnProgress]) -> KernelCosts:
    """Costs that are measured now, or were before."""
    return measured_costs(
        _cache(request),
        on_progress=track("measuring kernels"),
        store=kernel_store(request),
        on_compiled=track("compiling kernels"),
    )


def _predicted(
    kernels: Sequence[DeviceKernel], console: Console
) -> tuple[Costs, Correction | None]:
    """What the shipped model predicts; says for which kernels it is only a guess."""
    model = default_model()
    costs, correction = predict_to_correct(kernels, model)
    guessed = [k for k in kernels if costs[k.symbol].source is CostSource.ROOFLINE]
    if guessed:
        kinds = sorted({f"{k.source} on {k.target.kind.name}" for k in guessed})
        console.print(
            f"{len(distinct_kernels(guessed))} of {len(costs)} kernels cost what a typical roofline"
            f" says, because the cost model has no data of them: {', '.join(kinds)}"
        )
    if model is not None:
        say_what_is_transferred(kernels, costs, model, console)
    return costs, correction


def say_what_is_transferred(
    kernels: Sequence[DeviceKernel], costs: Costs, model: ModelFile, console: Console
) -> None:
    """Which predictions are for processors that the model has not learned from."""
    foreign = [k for k in kernels if costs[k.symbol].source is CostSource.TRANSFERRED]
    if foreign:
        here = sorted({processor_of(str(kernel.target)) for kernel in foreign})
        console.print(
            f"{len(distinct_kernels(foreign))} of {len(costs)} kernels run on {', '.join(here)}; the"
            f" cost model has learned from {', '.join(sorted(model.processors))}, so their costs are"
            " less certain until some are measured (--costs active)"
        )


def _cache(request: Request) -> MeasurementCache:
    return MeasurementCache(request.cache or default_cache_path())


def _budgets(problem: Problem, options: BudgetOptions) -> Mapping[str, int]:
    budgets = dict(budgets_for_ratio(problem, options.ratio)) if options.ratio is not None else {}
    return {**budgets, **options.budgets}


def _check_energy(problem: Problem, objective: Objective) -> None:
    if objective is not Objective.ENERGY:
        return
    if not any(cost.energy_uj for costs in problem.costs.values() for cost in costs.values()):
        raise InvalidPlatformError(
            "--objective energy needs to know what devices draw: give them power_w or"
            " energy_nj_per_flop in the platform file (and energy_nj_per_byte to the links)"
        )
