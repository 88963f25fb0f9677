"""Build the executable of a plan: kernels compiled for their devices, arenas allocated."""

from __future__ import annotations

from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.kernels.store.kernel_store import KernelStore, OnProgress, load_kernels
from tvm_xengine.planning.plan import Plan
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.step_program import KernelRun
from tvm_xengine.runtime.executable import StepExecutable


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
    program = make_step_program(step, plan)
    called = {call.symbol for call in program.calls if isinstance(call, KernelRun)}
    kernels = [kernel for kernel in step.distinct if kernel.symbol in called]
    modules = load_kernels(kernels, store, on_compiled)
    executable = StepExecutable(
        program,
        list(dict.fromkeys(modules.values())),
        plan.problem.platform,
        library_calls={k.symbol: k.library for k in kernels if k.library is not None},
        overlap=plan.is_overlapped,
    )
    executable.write(step.constants)
    return executable
