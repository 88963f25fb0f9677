"""Build the executable of a plan: kernels compiled for their devices, arenas allocated."""

from __future__ import annotations

import tvm

from tvm_xengine.compile.lower import LoweredStep
from tvm_xengine.kernels.library.context import KernelContext
from tvm_xengine.kernels.store.kernel_store import KernelStore, OnProgress, load_kernels
from tvm_xengine.passes.apply_schedule import ApplySchedule
from tvm_xengine.passes.bind_arenas import BindArenas
from tvm_xengine.planning.planner import Plan
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.schedule import Compute


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
    """The executable that runs `plan`.

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
