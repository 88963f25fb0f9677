"""Plan a training step and its evaluation in the regions of one processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import tvm
from numpy.typing import NDArray

from tvm_xengine.aot.emit_c.names_in_c import c_identifier
from tvm_xengine.aot.plan.kernels import Optimize, lower_for_target
from tvm_xengine.aot.plan.places import FromCaller, InContext, InFlash, InRegion, Place, Program
from tvm_xengine.aot.plan.program import make_program
from tvm_xengine.aot.plan.static_cost import static_costs
from tvm_xengine.aot.targets import EmbeddedTarget
from tvm_xengine.compile.lower import LoweredStep
from tvm_xengine.compile.plan import plan_keep_all
from tvm_xengine.compile.problem import op_costs
from tvm_xengine.compile.short_storage import ShortStorage, short_evaluation
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.planner import Plan, PlanOptions, plan_schedule
from tvm_xengine.relax_ir.signature import CONSTANTS_ATTR, TRAIN_STEP
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.graph import OpGraph, Role
from tvm_xengine.scheduling.platform import UNLIMITED_BYTES, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.solvers.working_set import working_sets
from tvm_xengine.training.step import TrainingStep

Array = NDArray[np.generic]
OnProgress = Callable[[str], None]

_LAYOUTS = 3
"""Plans that are tried for a layout with the state at the bottom."""

_STATE = (Role.PARAMETER, Role.OPTIMIZER_STATE, Role.STATISTIC)


@dataclass(frozen=True)
class Machine:
    """What is planned for.

    Attributes
    ----------
    platform
        The regions that can be written, as devices; the first one is the fastest.
    bandwidth_gb_s
        Speed of access to each region that is slower than the processor.
    code
        What TVM generates kernels for.
    """

    target: EmbeddedTarget
    platform: Platform
    bandwidth_gb_s: Mapping[str, float]
    code: tvm.target.Target

    @property
    def first(self) -> str:
        """The fastest region that computes."""
        return self.platform.computing[0].name


@dataclass(frozen=True)
class PlannedFunction:
    """A function with its plan, its kernels and its straight-line program.

    Attributes
    ----------
    constants
        Values of the arrays in flash, by name.
    """

    lowered: LoweredStep
    plan: Plan
    program: Program
    constants: Mapping[str, Array]


@dataclass(frozen=True)
class PlannedTraining:
    """The training step, planned.

    Attributes
    ----------
    state
        Place of each state tensor, in order.
    state_end_bytes
        For each region, the end of the state in it: what must be kept between steps.
    keep_everything_bytes
        What the first region would need if nothing were recomputed or moved.
    """

    function: PlannedFunction
    state: Mapping[str, InRegion]
    state_end_bytes: Mapping[str, int]
    keep_everything_bytes: int

    def is_short(self, name: str) -> bool:
        """Whether a state tensor is kept as float16."""
        return self.function.plan.problem.graph.tensor[name].dtype == "float16"


def plan_training(
    training: TrainingStep,
    machine: Machine,
    optimize: Optimize,
    options: PlanOptions,
    on_progress: OnProgress | None = None,
) -> PlannedTraining:
    """The training step planned so that every region's arena, state included, fits.

    Batch tensors are read where the caller has them, constants and frozen parameters in flash:
    neither takes arena bytes.

    Raises
    ------
    NoScheduleError
        If the regions are too small; it says what each one needs at least.
    UnsupportedModuleError
        If an op has no kernel.
    """
    lowered = lower_for_target(training.mod, machine.platform, machine.code, optimize, TRAIN_STEP)
    roles = {tensor.name: tensor.role for tensor in lowered.extraction.graph.bases}
    fixed = _fixed_places(roles, "")
    problem = _problem(lowered, machine, fixed)
    plan = _plan_above_state(problem, options, on_progress)
    names = dict(zip(training.result_names, _results(lowered), strict=False))
    start = dict.fromkeys(problem.platform.index, 0)
    program = make_program(lowered, plan, fixed, names, start)
    state = _state_places(plan)
    end = dict(start)
    for name, place in state.items():
        size = problem.graph.tensor[name].size_bytes
        end[place.region] = max(end[place.region], place.offset_bytes + size)
    function = PlannedFunction(
        lowered, plan, program, _constants(lowered, fixed, training.initial_state)
    )
    first = machine.first
    keep = plan_keep_all(problem, first).arenas.arena_bytes[first]
    return PlannedTraining(function, state, end, keep)


def plan_evaluation(
    model: ForwardModel,
    trained: PlannedTraining,
    machine: Machine,
    optimize: Optimize,
    options: PlanOptions,
    storage: ShortStorage | None = None,
) -> PlannedFunction:
    """The forward function in inference mode, planned in what the state leaves of the regions.

    It reads the state where the training step keeps it, and stores in float16 what `storage` says.

    Raises
    ------
    NoScheduleError
        If it does not fit.
    """
    short = [name for name in trained.state if trained.is_short(name)]
    mod, constants = short_evaluation(model, storage, short)
    lowered = lower_for_target(mod, machine.platform, machine.code, optimize, "main")
    found = {tensor.name: tensor.role for tensor in lowered.extraction.graph.bases}
    fixed = {**_fixed_places(found, "eval_"), **_known(found, trained)}
    start = dict(trained.state_end_bytes)
    problem = _problem(lowered, machine, fixed)
    plan = _plan_in_rest(problem, trained, machine.first, options)
    (output,) = _results(lowered)
    program = make_program(lowered, plan, fixed, {"output": output}, start)
    values = {**model.state, **constants}
    return PlannedFunction(lowered, plan, program, _constants(lowered, fixed, values))


def _plan_in_rest(
    problem: Problem, trained: PlannedTraining, first: str, options: PlanOptions
) -> Plan:
    """The evaluation beside the state: in the bytes of the training step, or else in all there are."""
    start = trained.state_end_bytes
    taken = trained.function.program.region_bytes
    keep = plan_keep_all(problem, first)
    for limit in (taken, {d.name: d.budget_bytes for d in problem.platform.devices}):
        # At least a byte, because a budget of nothing is no budget.
        rest = {name: max(size - start[name], 1) for name, size in limit.items()}
        if keep.arenas.arena_bytes[first] <= rest[first]:
            return keep
        try:
            return _plan(problem.with_budgets(rest), options, None)
        except NoScheduleError as error:
            refused = error
    raise refused


def _fixed_places(roles: Mapping[str, Role], prefix: str) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for name, role in roles.items():
        if role is Role.BATCH:
            places[name] = FromCaller(c_identifier(name))
        elif role is Role.HYPER:
            places[name] = InContext(c_identifier(name))
        elif role is Role.CONSTANT:
            # Constants that lowering lifts are numbered anew in each function.
            own = f"{prefix}{name}" if name.startswith("constant_") else name
            places[name] = InFlash(c_identifier(own))
    return places


def _known(roles: Mapping[str, Role], trained: PlannedTraining) -> dict[str, Place]:
    return {name: trained.state[name] for name in roles if name in trained.state}


def _problem(lowered: LoweredStep, machine: Machine, fixed: Mapping[str, Place]) -> Problem:
    graph = lowered.extraction.graph
    platform = machine.platform
    # What is read in place from outside the arenas takes none of their bytes.
    tensors = tuple(
        replace(tensor, size_bytes=0) if graph.base[tensor.name] in fixed else tensor
        for tensor in graph.tensors
    )
    bandwidth = machine.bandwidth_gb_s
    costs = op_costs(
        lowered,
        {r.name: static_costs(machine.target, bandwidth.get(r.name)) for r in platform.computing},
    )
    light = OpGraph(tensors, graph.ops, graph.outputs)
    home = _state_home(light, costs, platform)
    state = {tensor.name: home for tensor in light.bases if tensor.role in _STATE}
    state = {name: region for name, region in state.items() if name not in fixed}
    return Problem(light, platform, costs, state)


def _state_home(
    graph: OpGraph, costs: Mapping[str, Mapping[str, OpCost]], platform: Platform
) -> str:
    """The first region that can hold the state; with others, also beside the largest op."""
    state_bytes = sum(tensor.size_bytes for tensor in graph.bases if tensor.role in _STATE)
    several = len(platform.devices) > 1
    for device in platform.devices:
        ample = platform.with_budgets(dict.fromkeys(platform.index, UNLIMITED_BYTES))
        alone = Problem(graph, ample, costs, {})
        needed = state_bytes + (_largest_op_bytes(alone) if several else 0)
        if needed <= device.budget_bytes:
            return device.name
    sizes = {device.name: device.budget_bytes for device in platform.devices}
    fitting = [name for name, size in sizes.items() if state_bytes <= size]
    if not fitting:
        raise NoScheduleError(
            f"the state (parameters and optimizer state) takes {state_bytes} bytes, but the regions"
            f" have {sizes}: one region must hold it"
        )
    return fitting[0]


def _largest_op_bytes(problem: Problem) -> int:
    graph = problem.graph
    return max(
        sum(
            graph.tensor[name].size_bytes
            for name in {*graph.reads[op.name], *op.outputs}
            if graph.tensor[name].role not in _STATE
        )
        + min(cost.workspace_bytes for cost in problem.costs[op.name].values())
        for op in graph.ops
    )


def _plan(problem: Problem, options: PlanOptions, on_progress: OnProgress | None) -> Plan:
    sizes = {device.name: device.budget_bytes for device in problem.platform.devices}
    try:
        return plan_schedule(problem, options, on_progress)
    except NoScheduleError as error:
        least = working_sets(problem).least_bytes()
        raise NoScheduleError(
            f"no schedule fits the regions {sizes}; no region works with less than {dict(least)}"
            f" bytes (state and the largest op): {error}"
        ) from error


def _plan_above_state(
    problem: Problem, options: PlanOptions, on_progress: OnProgress | None
) -> Plan:
    """A plan with all state below the rest where that can be had, also while it is paged out.

    The evaluation needs room above the state in one piece. Where a plan has used the bytes of
    state that was away, the next one gets a budget that is smaller by as much.
    """
    budgets = {device.name: device.budget_bytes for device in problem.platform.devices}
    plan = first = _plan(problem, options, on_progress)
    smaller = dict(budgets)
    for _ in range(_LAYOUTS):
        arenas = plan_arenas(plan.problem, plan.schedule, reserve_home=True)
        excess = {name: size - budgets[name] for name, size in arenas.arena_bytes.items()}
        if max(excess.values()) <= 0:
            return replace(plan, problem=problem, arenas=arenas)
        smaller = {name: smaller[name] - max(excess[name], 0) for name in budgets}
        try:
            plan = _plan(problem.with_budgets(smaller), options, on_progress)
        except (NoScheduleError, ValueError):
            break
    return first


def _results(lowered: LoweredStep) -> tuple[str, ...]:
    return lowered.extraction.graph.outputs


def _state_places(plan: Plan) -> dict[str, InRegion]:
    arenas = plan.arenas
    order = [tensor.name for tensor in plan.problem.graph.bases if tensor.role in _STATE]
    first = {
        instance.tensor: InRegion(instance.device, arenas.offset_bytes[instance.id])
        for instance in arenas.residency.instances
        if instance.start == -1 and instance.is_home_state
    }
    return {name: first[name] for name in order if name in first}


def _constants(
    lowered: LoweredStep, fixed: Mapping[str, Place], values: Mapping[str, Array]
) -> dict[str, Array]:
    """The values behind the places in flash."""
    func = lowered.mod[lowered.func_name]
    lifted = list(func.attrs.get(CONSTANTS_ATTR, ())) if func.attrs else []
    params = [param.name for param in func.params]
    known: dict[str, Array] = dict(values)
    for name, value in zip(params[len(params) - len(lifted) :], lifted, strict=True):
        known[name] = value.numpy()
    return {
        place.name: np.asarray(known[name])
        for name, place in fixed.items()
        if isinstance(place, InFlash)
    }
