"""Build the executable of a plan: kernels compiled for their devices, arenas allocated."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from tvm_xengine.cluster.rank_executable import RankExecutable
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.store.kernel_store import KernelStore, OnProgress, load_kernels
from tvm_xengine.planning.plan import Plan
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.step_program import KernelRun
from tvm_xengine.runtime.executable import CompiledKernels, StepExecutable
from tvm_xengine.runtime.shared_arenas import ArenaPart


def build_step(
    step: LoweredStep,
    plan: Plan,
    *,
    store: KernelStore | None = None,
    on_compiled: OnProgress | None = None,
    arenas: Mapping[str, ArenaPart] | None = None,
) -> StepExecutable:
    """The executable that runs `plan`.

    Where the devices are on several ranks, each process builds the part of its own devices.

    `store` and `on_compiled` are those of :func:`tvm_xengine.kernels.store.kernel_store.load_kernels`,
    `arenas` those of `StepExecutable`.

    Raises
    ------
    InvalidPlatformError
        If the devices are on several ranks, and this process has not joined them.
    """
    program, platform, ranks = make_step_program(step, plan), plan.problem.platform, step.ranks
    if platform.ranks > 1 and ranks is None:
        raise InvalidPlatformError(
            f"the devices are on {platform.ranks} ranks, and this is one process: start the program"
            " with torchrun, or the command with `tvm-xengine launch`"
        )
    called = {
        call.symbol
        for call in program.calls
        if isinstance(call, KernelRun)
        and (ranks is None or platform.device(call.device).rank == ranks.rank)
    }
    kernels = [kernel for kernel in step.distinct if kernel.symbol in called]
    with nullcontext() if ranks is None else ranks.failing_together():
        modules = list(dict.fromkeys(load_kernels(kernels, store, on_compiled).values()))
    compiled = CompiledKernels(
        modules,
        {kernel.symbol: kernel.library for kernel in kernels if kernel.library is not None},
        parallel=any(kernel.is_parallel for kernel in kernels),
    )
    if ranks is None:
        executable = StepExecutable(
            program, compiled, platform, arenas=arenas, overlap=plan.is_overlapped
        )
    else:
        executable = RankExecutable(program, compiled, platform, ranks)
    executable.write(step.constants)
    return executable
