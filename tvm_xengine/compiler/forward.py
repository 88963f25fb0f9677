"""Build the executable of a forward function, e.g. to evaluate a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import tvm

from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.kernels.store.kernel_store import KernelStore
from tvm_xengine.relax_ir.signature import StepSignature, is_step
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import OpCost


def build_forward(
    mod: tvm.IRModule,
    num_inputs: int,
    platform: Platform,
    *,
    results: Sequence[str] = ("output",),
    store: KernelStore | None = None,
    rank: int = 0,
) -> StepExecutable:
    """An executable of the function ``main``, which reads `num_inputs` inputs and then parameters.

    It runs on the platform's home device (or the first that computes) and keeps all tensors;
    `results` names what it returns. Where the devices are on several ranks it runs on one of `rank`,
    if any of these computes.
    """
    main = mod["main"]
    parameters = (Role.PARAMETER,) * (len(main.params) - num_inputs)
    mod = mod.clone()
    roles = (Role.BATCH,) * num_inputs + parameters
    ranges = StepSignature.read(main).ranges if is_step(main) else {}
    signature = StepSignature(roles, len(results), tuple(results), ranges=ranges)
    mod["main"] = signature.write(main)
    here = [device for device in platform.computing if device.rank == rank]
    names = [device.name for device in here or platform.computing]
    device = platform.device(platform.home if platform.home in names else names[0])
    alone = Platform((replace(device, rank=0),), alignment_bytes=platform.alignment_bytes)
    step = lower_step(mod, alone, func_name="main")
    # With one device and one order there is nothing to choose, so costs play no part.
    problem = make_problem(step, lambda kernels: {k.symbol: OpCost(1.0) for k in kernels})
    return build_step(step, plan_keep_all(problem, device.name), store=store)
