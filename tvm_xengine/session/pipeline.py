"""The stage as a pass of TVM: `relax.get_pipeline("tvm_xengine", platform=..., budget=...)`."""

from __future__ import annotations

import tvm

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.costing.links import with_measured_links
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.options import CompileOptions, CostChoice
from tvm_xengine.compiler.plan import plan_step
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.lower.hidden_indices import HideIndices
from tvm_xengine.passes.apply_schedule import ApplySchedule
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.relax_ir.dataflow import step_function
from tvm_xengine.relax_ir.signature import is_step
from tvm_xengine.scheduling.default_platform import default_platform
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.session.stages.budgets import BudgetLike, budgets_of
from tvm_xengine.solvers.result import Limits


@checked
def scheduling_pipeline(
    *,
    platform: Platform | None = None,
    budget: BudgetLike = None,
    costs: str = "predicted",
    time_limit_s: float = 60.0,
    func_name: str | None = None,
) -> tvm.transform.Pass:
    """A pass that lowers, plans and schedules the training step of a module.

    The step is what `BuildTrainingGraph` makes, or a function of one's own that
    `with_step_signature` has marked. In the result the calls stand in the order of the schedule,
    recomputed ones repeated, with ``R.to_vdevice`` for copies. No pass after it may merge equal
    expressions or reorder bindings.

    Hints are constraints: the op that makes the operand of ``R.hint_on_device`` runs on that device
    (counted among those of its type), and what lies between ``start_checkpoint`` and
    ``end_checkpoint`` is recomputed.

    Parameters
    ----------
    platform
        None is this machine's processor.
    budget
        As in `compile`.
    costs
        ``active``, ``measured``, ``predicted`` or ``roofline``.
    time_limit_s
        Of planning, as in `compile`.
    func_name
        Name of the training step in the module; None takes the only one that is marked.
    """
    devices = Platform(default_platform().devices[:1]) if platform is None else platform
    options = CompileOptions(
        CostChoice(costs),
        budgets_of(budget, devices),
        PlanOptions(limits=Limits(time_limit_s=time_limit_s)),
    )
    return ScheduleTrainingStep(devices, options, func_name)


@tvm.transform.module_pass(opt_level=0, name="ScheduleTrainingStep")
class ScheduleTrainingStep:
    """Lower, plan and schedule the training step of a module; see `scheduling_pipeline`."""

    def __init__(
        self, platform: Platform, options: CompileOptions, func_name: str | None = None
    ) -> None:
        self.platform = platform
        self.options = options
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        func_name = self.func_name or _only_step(mod)
        step_function(mod, func_name)
        stores = Stores.open(self.options)
        platform = with_measured_links(self.platform, stores.measurements)
        lowered = lower_step(mod, platform, func_name=func_name, tuned=stores.tuned)
        planned = plan_step(lowered, self.options, stores)
        plan = planned.plan
        apply = ApplySchedule(plan.problem, plan.schedule, func_name)
        return tvm.transform.Sequential([apply, HideIndices()])(planned.lowered.mod)


def _only_step(mod: tvm.IRModule) -> str:
    """The name of the training step of a module.

    Raises
    ------
    UnsupportedModuleError
        If none is marked, or several are.
    """
    marked = [symbol.name_hint for symbol, func in mod.functions.items() if is_step(func)]
    if len(marked) == 1:
        return str(marked[0])
    if marked:
        raise UnsupportedModuleError(
            f"the module has several training steps, {sorted(marked)}; choose one with func_name"
        )
    raise UnsupportedModuleError(
        "no function of the module is marked as a training step; mark one with"
        " with_step_signature, or make one with training_step"
    )
