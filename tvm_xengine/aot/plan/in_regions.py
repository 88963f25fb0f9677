"""The forms of a function in the regions of a processor, and plans of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm_xengine.aot.plan.forms import Forms
from tvm_xengine.aot.plan.kernels import TargetKernels
from tvm_xengine.aot.plan.region_problem import Machine, region_problem
from tvm_xengine.aot.plan.slow_operands import slow_op_costs, with_tiles
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.alternatives.leaner_order import in_leaner_order
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.planning.streams.in_time import as_it_runs
from tvm_xengine.program.step_program import Operand
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.sizes import format_budgets

OnProgress = Callable[[str], None]


def forms_in_regions(
    whole: LoweredStep,
    divided: Callable[[], LoweredStep],
    prepared: TargetKernels,
    machine: Machine,
    fixed: Mapping[str, Operand],
    sizes: Mapping[str, int] | None = None,
) -> Forms:
    """The forms of a function some of whose tensors are `fixed`, in regions of such sizes."""

    def problem_of(form: LoweredStep) -> Problem:
        costs = slow_op_costs(form, machine, fixed)
        return region_problem(form, machine, fixed, costs).with_budgets(sizes or {})

    return Forms(
        whole,
        divided,
        prepared,
        problem_of,
        lambda form: with_tiles(form, machine, fixed, prepared),
    )


def plan_in_regions(
    problem: Problem,
    options: PlanOptions,
    on_progress: OnProgress | None,
    start: Schedule | None = None,
    *,
    prefer_reserved_home: bool = False,
) -> Plan:
    sizes = {device.name: device.budget_bytes for device in problem.platform.devices}
    try:
        plan = plan_schedule(
            problem,
            options,
            on_progress,
            start=start,
            prefer_reserved_home=prefer_reserved_home,
        )
        plan = as_it_runs(plan, reserve_home=True) if prefer_reserved_home else plan
        return in_leaner_order(plan, reserve_home=prefer_reserved_home)
    except NoScheduleError as error:
        # Behind its first clause, which names options of other commands, the message has the reasons.
        reasons = str(error).partition("; ")[2].replace("--budget ", "")
        raise NoScheduleError(
            f"no schedule fits the regions {format_budgets(sizes)}; {reasons or error}",
            is_proven=error.is_proven,
        ) from error


def behind(sizes: Mapping[str, int], start_bytes: Mapping[str, int]) -> dict[str, int]:
    """What is left of each region; at least a byte, because a budget of nothing is no budget."""
    return {name: max(sizes.get(name, 0) - used, 1) for name, used in start_bytes.items()}
