"""The road in functions: lower, cost, plan, build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import tirx

from tvm_xengine.compile.energy import kernel_energy_uj
from tvm_xengine.compile.prepared import PreparedKernels
from tvm_xengine.cost_models.measure.fingerprint import device_fingerprint
from tvm_xengine.cost_models.measure.measure import (
    measure_kernels,
    require_measured,
)
from tvm_xengine.cost_models.measure.measure_link import measure_link
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.timers import timer_for
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels
from tvm_xengine.kernels.library.context import KernelContext
from tvm_xengine.kernels.store.kernel_store import KernelStore, OnProgress, load_kernels
from tvm_xengine.kernels.store.tuned import TunedSchedules
from tvm_xengine.kernels.threads import share_cores
from tvm_xengine.passes.apply_schedule import ApplySchedule
from tvm_xengine.passes.bind_arenas import BindArenas
from tvm_xengine.passes.lower_to_kernels import LowerToKernels
from tvm_xengine.passes.split_groups import SplitGroups
from tvm_xengine.planning.planner import Plan, keep_everything
from tvm_xengine.relax_ir.extract import Extraction, extract_graph
from tvm_xengine.relax_ir.signature import TRAIN_STEP, StepSignature
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.storage import runtime_device
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import CostSource, OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.scheduling.sizes import round_up
from tvm_xengine.solvers.result import Objective, SolveResult, Status

KernelCosts = Callable[[Sequence[DeviceKernel]], Mapping[str, OpCost]]
"""Says what kernels cost, by their symbol."""


@dataclass(frozen=True)
class LoweredStep:
    """A training step of kernel calls, and each kernel made ready for each device.

    Attributes
    ----------
    func_name
        The Relax function that is the step.
    kernels
        By (name of the PrimFunc, name of the device).
    """

    mod: tvm.IRModule
    func_name: str
    extraction: Extraction
    platform: Platform
    kernels: Mapping[tuple[str, str], DeviceKernel]

    @property
    def symbols(self) -> frozenset[str]:
        """The different kernels."""
        return frozenset(kernel.symbol for kernel in self.kernels.values())

    def kernel(self, op: str, device: str) -> DeviceKernel:
        """The kernel of an op on a device."""
        return self.kernels[self.extraction.kernels[op], device]


def lower_step(
    mod: tvm.IRModule,
    platform: Platform,
    on_progress: OnProgress | None = None,
    *,
    func_name: str = TRAIN_STEP,
    tuned: TunedSchedules | None = None,
) -> LoweredStep:
    """A function of `mod` as kernel calls, every kernel prepared for every device.

    The thread pools that kernels may run on are set up first (``share_cores``).

    Parameters
    ----------
    tuned
        Schedules for generated kernels, where they are known to be faster than our rules'.

    Raises
    ------
    UnsupportedModuleError
        If an op has no kernel or a shape is not static; it is named.
    InvalidPlatformError
        If a device names kernel sources that nobody knows, or only such as are missing here.
    """
    share_cores()
    prepared = PreparedKernels(platform, tuned)
    devices = [device.name for device in platform.computing]
    lowered = tvm.transform.Sequential([LowerToKernels(func_name)])(mod)
    symbols = [g for g, func in lowered.functions_items() if isinstance(func, tirx.PrimFunc)]
    wanted = [(symbol, device) for symbol in symbols for device in devices]
    for done, (symbol, device) in enumerate(wanted, 1):
        prepared.prepare(lowered[symbol], device, symbol.name_hint)
        if on_progress is not None:
            on_progress(done, len(wanted), symbol.name_hint)
    lowered = tvm.transform.Sequential([SplitGroups(func_name, prepared.needs)])(lowered)
    extraction = extract_graph(lowered, func_name, alignment_bytes=platform.alignment_bytes)
    kernels = {
        (name, device): prepared.prepare(lowered[name], device, name)
        for device in devices
        for name in dict.fromkeys(extraction.kernels.values())
    }
    return LoweredStep(lowered, func_name, extraction, platform, kernels)


def make_problem(step: LoweredStep, platform: Platform, costs: KernelCosts) -> Problem:
    """The scheduling problem of a step whose links are measured.

    Parameters
    ----------
    platform
        As in `step`, with measured links and perhaps other budgets.
    """
    alignment = platform.alignment_bytes
    by_symbol = costs(list(step.kernels.values()))
    by_op: dict[str, dict[str, OpCost]] = {}
    for op in step.extraction.graph.ops:
        by_op[op.name] = {}
        for device in platform.computing:
            kernel = step.kernel(op.name, device.name)
            cost = by_symbol[kernel.symbol]
            by_op[op.name][device.name] = replace(
                cost,
                workspace_bytes=round_up(kernel.workspace_bytes, alignment),
                energy_uj=cost.energy_uj or kernel_energy_uj(device, kernel, cost.compute_us),
            )
    return Problem(step.extraction.graph, platform, by_op)


def measured_costs(
    cache: MeasurementCache,
    effort: Effort | None = None,
    on_progress: OnProgress | None = None,
    *,
    store: KernelStore | None = None,
    on_compiled: OnProgress | None = None,
) -> KernelCosts:
    """Costs that are measured now, or taken from `cache` where they were measured before.

    With a store the kernels run in a process of their own. The other parameters are those of
    :func:`tvm_xengine.cost_models.measure.measure.measure_kernels`.

    Raises
    ------
    MeasurementError
        By the returned function, when a kernel crashes or does not end.
    """

    def costs(kernels: Sequence[DeviceKernel]) -> Mapping[str, OpCost]:
        known = {
            kernel.symbol
            for kernel in kernels
            if cache.find(kernel.key, device_fingerprint(kernel.target)) is not None
        }
        distinct = distinct_kernels(kernels)
        measured = measure_kernels(
            distinct,
            cache,
            effort=effort,
            on_progress=on_progress,
            timer=timer_for(store),
            on_compiled=on_compiled,
        )
        require_measured(distinct, measured, cache)
        return {
            symbol: OpCost(
                compute_us=m.compute_us,
                interval_us=(m.lo_us, m.hi_us),
                source=CostSource.CACHED if symbol in known else CostSource.MEASURED,
            )
            for symbol, m in measured.items()
        }

    return costs


def with_measured_links(platform: Platform, cache: MeasurementCache) -> Platform:
    """The platform with latency and bandwidth of every link, measured where not given."""
    links = []
    for link in platform.links:
        if not link.is_measured:
            src, dst = (
                runtime_device(platform.device(name).target) for name in (link.src, link.dst)
            )
            measured = measure_link(src, dst, cache)
            link = replace(
                link, latency_us=measured.latency_us, bandwidth_gb_s=measured.bandwidth_gb_s
            )
        links.append(link)
    return replace(platform, links=tuple(links))


def plan_keep_everything(problem: Problem, device: str) -> Plan:
    """The plan that keeps every tensor until its last use, all on one device, without budget.

    Raises
    ------
    ValueError
        If some op cannot run on `device`.
    """
    alone, schedule = keep_everything(problem, device)
    simulation = simulate(alone, schedule)
    result = SolveResult(
        status=Status.FEASIBLE,
        schedule=schedule,
        objective=Objective.COST,
        value=simulation.cost_us,
        bound=0.0,
        solve_s=0.0,
        solver="keep everything",
    )
    return Plan(alone, result, schedule, simulation, plan_arenas(alone, schedule))


def build_forward(
    mod: tvm.IRModule, num_inputs: int, platform: Platform, *, store: KernelStore | None = None
) -> StepExecutable:
    """An executable of the function ``main``, which reads `num_inputs` inputs and then parameters.

    It runs on the platform's home device (or the first that computes) and keeps everything; its
    result is called ``output``.
    """
    main = mod["main"]
    parameters = (Role.PARAMETER,) * (len(main.params) - num_inputs)
    mod = mod.clone()
    mod["main"] = StepSignature((Role.BATCH,) * num_inputs + parameters, 1, ("output",)).write(main)
    names = [device.name for device in platform.computing]
    device = platform.device(platform.home if platform.home in names else names[0])
    alone = Platform((device,), alignment_bytes=platform.alignment_bytes)
    step = lower_step(mod, alone, func_name="main")
    # With one device and one order there is nothing to choose, so costs play no part.
    problem = make_problem(step, alone, lambda kernels: {k.symbol: OpCost(1.0) for k in kernels})
    return build_step(step, plan_keep_everything(problem, device.name), store=store)


def apply_plan(step: LoweredStep, plan: Plan) -> tvm.IRModule:
    """The module whose training step executes `plan`, before its tensors get addresses."""
    apply = ApplySchedule(plan.problem, plan.schedule, step.func_name)
    return tvm.transform.Sequential([apply])(step.mod)


def build_step(
    step: LoweredStep,
    plan: Plan,
    *,
    store: KernelStore | None = None,
    on_compiled: OnProgress | None = None,
) -> StepExecutable:
    """The executable that runs `plan`: kernels compiled for their devices, arenas allocated.

    `store` and `on_compiled` are those of :func:`tvm_xengine.kernels.store.kernel_store.load_kernels`.
    """
    used = dict.fromkeys(
        (step.extraction.kernels[s.op], s.device)
        for s in plan.schedule.steps
        if isinstance(s, Compute)
    )
    kernels = {kernel.symbol: kernel for kernel in (step.kernels[key] for key in used)}
    modules = load_kernels(kernels.values(), store, on_compiled)
    libraries = list(dict.fromkeys(modules.values()))
    contexts = {
        symbol: KernelContext(kernel.library)
        for symbol, kernel in kernels.items()
        if kernel.library is not None
    }
    bind = BindArenas(plan.problem, plan.schedule, plan.arenas, step.kernels, step.func_name)
    bound = tvm.transform.Sequential([bind])(apply_plan(step, plan))
    return StepExecutable(
        bound, libraries, plan.problem.platform, step.func_name, contexts=contexts
    )
