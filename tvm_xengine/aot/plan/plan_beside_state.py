"""Plan evaluation and other functions of a package in the memory that its state leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm

from tvm_xengine.aot.plan.forms import plan_forms
from tvm_xengine.aot.plan.in_regions import behind, forms_in_regions, plan_in_regions
from tvm_xengine.aot.plan.kernels import Optimize, TargetKernels, lower_for_target
from tvm_xengine.aot.plan.planned import Array, PlannedFunction, StateLayout, values_in_flash
from tvm_xengine.aot.plan.region_problem import Machine, outside_views
from tvm_xengine.compiler.lean.short_storage import ShortStorage, short_evaluation
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.planning.alternatives.leaner_order import in_leaner_order
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.step_program import Operand
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.sizes import format_budgets, round_up


def plan_evaluation(
    model: ForwardModel,
    layout: StateLayout,
    machine: Machine,
    optimize: Optimize,
    options: PlanOptions,
    storage: ShortStorage | None = None,
    taken_bytes: Mapping[str, int] | None = None,
    prefix: str = "eval_",
) -> PlannedFunction:
    """Plan the forward function in inference mode, next to the state.

    It reads the state where it is kept, and stores in a short type what `storage` says.

    Parameters
    ----------
    taken_bytes
        What other functions of the package take of each region.
    prefix
        Of the constants that lowering makes.

    Raises
    ------
    NoScheduleError
        If it does not fit.
    """
    mod, constants = short_evaluation(model, storage, layout.short)
    function = SharedFunction(mod, "main", {**model.state, **constants}, prefix)
    return plan_shared(function, layout, machine, optimize, options, taken_bytes or {})


@dataclass(frozen=True)
class SharedFunction:
    """A function that is planned next to state whose places are known.

    Attributes
    ----------
    values
        Values of what it reads in flash, by name.
    prefix
        Of the constants that lowering makes.
    """

    mod: tvm.IRModule
    name: str
    values: Mapping[str, Array]
    prefix: str


def plan_shared(
    function: SharedFunction,
    layout: StateLayout,
    machine: Machine,
    optimize: Optimize,
    options: PlanOptions,
    taken_bytes: Mapping[str, int],
) -> PlannedFunction:
    """Plan a function that reads and writes the state where `layout` has it.

    Raises
    ------
    NoScheduleError
        If it does not fit behind state and sums.
    """
    lowered = lower_for_target(
        function.mod, machine.platform, machine.code, optimize, function.name
    )
    outside = outside_views(lowered, {*machine.outside, Role.CONSTANT}, function.prefix)
    used = {tensor.name for tensor in lowered.extraction.graph.bases}
    shared = {name: place for name, place in layout.places.items() if name in used}
    fixed: dict[str, Operand] = {**outside, **shared}
    sizes = {device.name: device.budget_bytes for device in machine.platform.devices}
    rest, taken = (behind(limit, layout.end_bytes) for limit in (sizes, taken_bytes))
    forms = forms_in_regions(
        lowered,
        lambda: lowered,  # it updates nothing, or has no batch
        TargetKernels(machine.code, optimize),
        machine,
        fixed,
        rest,
    )
    try:
        lowered, plan = plan_forms(
            forms,
            min(rest[machine.first], taken[machine.first]),
            options,
            lambda problem, options, start: _plan_in_rest(
                problem, taken, machine.first, options, start
            ),
        )
    except NoScheduleError as error:
        kept = format_budgets({name: size for name, size in layout.end_bytes.items() if size})
        raise NoScheduleError(
            f"{function.prefix.rstrip('_')} does not fit behind {kept} of state, which come on top of"
            f" these sizes: {error}",
            is_proven=error.is_proven and _is_compact(layout, machine),
        ) from error
    program = make_step_program(lowered, plan, fixed=fixed, arena_start_bytes=layout.end_bytes)
    constants = values_in_flash(lowered, fixed, function.values)
    return PlannedFunction(lowered, plan, program, constants)


def _is_compact(layout: StateLayout, machine: Machine) -> bool:
    """Whether state and sums take no more of the only region than their bytes."""
    align = machine.platform.alignment_bytes
    size = sum(round_up(place.size_bytes, align) for place in layout.places.values())
    return len(machine.platform.devices) == 1 and layout.end_bytes[machine.first] <= size


def _plan_in_rest(
    problem: Problem,
    taken_bytes: Mapping[str, int],
    first: str,
    options: PlanOptions,
    start: Schedule | None,
) -> Plan:
    """Plan in the bytes that other functions take anyway, or else in all bytes of the budgets."""
    keep = plan_keep_all(problem, first)
    rest_bytes = {device.name: device.budget_bytes for device in problem.platform.devices}
    for limit in (taken_bytes, rest_bytes):
        if keep.arenas.arena_bytes[first] <= limit[first]:
            return in_leaner_order(keep)
        try:
            return plan_in_regions(problem.with_budgets(limit), options, None, start)
        except NoScheduleError as error:
            refused = error
    raise refused
