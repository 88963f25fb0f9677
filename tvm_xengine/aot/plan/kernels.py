"""Kernels prepared for an embedded processor: fast, or small in code and scratch memory."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from enum import Enum
from functools import partial

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir.schedule import SBlockRV, ScheduleError
from tvm.target import Target

from tvm_xengine.aot.plan.tiles import TiledFunction, cut_results
from tvm_xengine.aot.targets import EmbeddedTarget
from tvm_xengine.compiler.constraint_patterns import ConstraintPatterns
from tvm_xengine.compiler.lower import LoweredStep, lower_with
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.operation_count import count_operations
from tvm_xengine.kernels.schedules.inline import (
    inline_elementwise,
    is_reduction,
    leaf_blocks,
)
from tvm_xengine.kernels.schedules.rules import schedule_kernel
from tvm_xengine.passes.fusion.fuse_updates import FuseUpdates
from tvm_xengine.passes.fusion.read_stored_weights import ReadStoredWeights
from tvm_xengine.passes.fusion.split_groups import KernelNeeds
from tvm_xengine.relax_ir.kernel_attributes import CALLS_FUNCTIONS_ATTR, kernel_hash
from tvm_xengine.scheduling.platform import Platform


class Backend(Enum):
    """The form in which a step is exported."""

    C = "c"  # C throughout
    LLVM = "llvm"  # C that calls kernels in an object file
    VM = "vm"  # a library for TVM's virtual machine


class Optimize(Enum):
    """What kernels are optimised for: scratch memory and code size, or speed."""

    SIZE = "size"  # loops as they were written, functions such as exp once for all kernels
    SPEED = "speed"  # the project's schedules, where scratch does not outweigh the operands


LEAN = "lean"
"""Name of the variant of a kernel that needs the least scratch memory."""


def code_target(target: EmbeddedTarget, backend: Backend) -> Target:
    """The TVM target of an embedded target.

    Raises
    ------
    UnsupportedModuleError
        If LLVM has no code generator for the target.
    """
    if backend is Backend.C:
        core = {"mcpu": target.name} if target.has_dsp else {}
        return Target({"kind": "c", **core})
    try:
        return Target({"kind": "llvm", **target.llvm})
    except (ValueError, TypeError) as error:
        raise UnsupportedModuleError(
            f"target {target.name} cannot be used with the LLVM back end: {error}"
        ) from error


def lower_for_target(
    mod: tvm.IRModule,
    platform: Platform,
    target: Target,
    optimize: Optimize,
    func_name: str,
    constraints: ConstraintPatterns | None = None,
    *,
    fuses_updates: bool = True,
) -> LoweredStep:
    """A function of `mod` as kernel calls; all regions of `platform` share one kernel for each.

    Parameters
    ----------
    constraints
        Where ops run, and which are kept or repeated.
    fuses_updates
        Whether the update is fused into the gradient kernel where that saves memory.

    Raises
    ------
    InvalidProblemError
        If a pattern of `constraints` matches nothing that it can be used for.
    UnsupportedModuleError
        If an op has no kernel or a shape is not static; it is named.
    """
    is_better = None if optimize is Optimize.SIZE else partial(_saves_memory, target)
    prepared = TargetKernels(target, optimize)
    return lower_with(
        *(prepared, mod, platform, func_name),
        first=[ReadStoredWeights(func_name)],
        passes=[FuseUpdates(func_name, is_better)] if fuses_updates else [],
        constraints=constraints,
    )


def kernels_for_target(step: LoweredStep, target: Target, optimize: Optimize) -> LoweredStep:
    """The calls of a step that is lowered for other devices, with kernels for a target."""
    prepared = TargetKernels(target, optimize)
    kernels = {
        (name, device): prepared.prepare(step.mod[name], name=name) for name, device in step.kernels
    }
    return replace(step, kernels=kernels, variants={})


class TargetKernels:
    """Prepares each kernel once for one target, whichever region its operands are in, and cuts it once."""

    def __init__(self, target: Target, optimize: Optimize) -> None:
        self._target = target
        self._optimize = optimize
        self._known: dict[str, DeviceKernel] = {}
        self._cut: dict[tuple[str, int, int], TiledFunction | None] = {}

    def with_variants(self, step: LoweredStep) -> LoweredStep:
        """The step whose runs may also take the kernels of the least scratch memory, as `LEAN`."""
        least = kernels_for_target(step, self._target, Optimize.SIZE).kernels
        lean = {
            key: {**step.variants.get(key, {}), LEAN: kernel}
            for key, kernel in least.items()
            if kernel.workspace_bytes < step.kernels[key].workspace_bytes
        }
        return replace(step, variants={**step.variants, **lean})

    @property
    def needs(self) -> KernelNeeds:
        return KernelNeeds(
            workspace_bytes=lambda func: self.prepare(func).workspace_bytes,
            time_us=lambda func: operations(self.prepare(func)),
        )

    def prepare(self, func: tirx.PrimFunc, _device: str = "", name: str = "kernel") -> DeviceKernel:
        key = kernel_hash(func)
        if key not in self._known:
            self._known[key] = prepare_for_target(func, self._target, name, self._optimize)
        return replace(self._known[key], name=name)

    def cut_results(self, func: tirx.PrimFunc, dimension: int, tiles: int) -> TiledFunction | None:
        """See `tiles.cut_results`."""
        key = (kernel_hash(func), dimension, tiles)
        if key not in self._cut:
            self._cut[key] = cut_results(func, dimension, tiles)
        return self._cut[key]


def operations(kernel: DeviceKernel) -> float:
    """An estimate that is proportional to a kernel's time on a processor without vectors."""
    count = count_operations(kernel)
    return max(float(count.float_ops + count.accesses + 2 * count.loop_steps), 1.0)


def _saves_memory(target: Target, merged: tirx.PrimFunc, gradient: tirx.PrimFunc) -> bool:
    """Whether the merged kernel needs less additional scratch memory than the gradient takes.

    A packed product that is written over a parameter must hold its whole depth at once.
    """
    both, alone = (prepare_kernel(func, target) for func in (merged, gradient))
    (made,) = alone.outputs
    return both.workspace_bytes <= alone.workspace_bytes + made.size_bytes // 2


def prepare_for_target(
    func: tirx.PrimFunc, target: Target, name: str, optimize: Optimize
) -> DeviceKernel:
    """The kernel to export: the fast one, unless it needs much memory or size is the goal."""
    if optimize is Optimize.SPEED:
        fast = prepare_kernel(func, target, name)
        if fast.workspace_bytes <= _operand_bytes(fast):
            return fast
        plain = prepare_kernel(func, target, name, schedule=_inlined)
    else:
        fast = prepare_kernel(func, target, name, schedule=_fast_with_calls)
        plain = prepare_kernel(func, target, name, schedule=_inlined_with_calls)
    # Loops as written may store whole intermediates; the packed kernel is then the smaller one.
    return min([plain, fast], key=lambda kernel: kernel.workspace_bytes)


def _operand_bytes(kernel: DeviceKernel) -> int:
    return sum(spec.size_bytes for spec in (*kernel.inputs, *kernel.outputs))


def _fast_with_calls(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    return schedule_kernel(func, target).with_attr(CALLS_FUNCTIONS_ATTR, True)


def _inlined_with_calls(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    return _inlined(func, target).with_attr(CALLS_FUNCTIONS_ATTR, True)


def _inlined(func: tirx.PrimFunc, _target: Target) -> tirx.PrimFunc:
    """Loops as written, with intermediates computed inside the loops of their readers if possible."""
    sch = s_tir.Schedule(func, error_render_level="none", debug_mask="none")
    inline_elementwise(sch)
    for block in leaf_blocks(sch):
        if is_reduction(sch, block):
            _sum_at_once(sch, block)
    return sch.mod["main"]


def _sum_at_once(sch: s_tir.Schedule, block: SBlockRV) -> None:
    """Initialise each sum before its loops, and read it after them where it has one reader."""
    axes = sch.get(block).iter_vars
    outer = [axis.iter_type == tirx.IterVar.DataPar for axis in axes].count(True)
    loops = sch.get_loops(block)
    if not outer < len(loops) == len(axes):
        return
    readers = sch.get_consumers(block)
    if outer and len(readers) == 1 and _reads_everywhere(sch, readers[0]):
        with contextlib.suppress(ScheduleError):
            sch.reverse_compute_at(readers[0], loops[outer - 1])
    with contextlib.suppress(ScheduleError):
        sch.decompose_reduction(block, loops[outer])


def _reads_everywhere(sch: s_tir.Schedule, reader: SBlockRV) -> bool:
    """Whether a block is no sum and reads its input at every position.

    Padding does not: positions without a read would be missing from the producer's loops.
    """
    if is_reduction(sch, reader):
        return False
    conditions: list[ir.Expr] = []

    def visit_call(call: ir.Call) -> None:
        if isinstance(call.op, ir.Op) and call.op.name == "prim.if_then_else":
            conditions.append(call.args[0])

    body = sch.get(reader).body
    tvm_ffi.structural_walk(body, (ir.Call, visit_call))
    tvm_ffi.structural_walk(body, (tirx.Select, lambda node: conditions.append(node.condition)))
    return all(_depends_on_data(condition) for condition in conditions)


def _depends_on_data(condition: ir.Expr) -> bool:
    loads: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(condition, (ir.TensorLoad, loads.append))
    return bool(loads)
