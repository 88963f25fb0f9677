"""Lowering and compilation of kernels for each kind of device.

Processors and GPUs are known. Another package adds a kind of device by an entry point that has the
name of the kind of TVM's target and names a `DeviceKind`::

    [project.entry-points."tvm_xengine.device_kinds"]
    hexagon = "my_package.hexagon:HEXAGON"
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.errors import InvalidPlatformError, UnsupportedModuleError
from tvm_xengine.extensions.extended import Extended, extended
from tvm_xengine.files.say_once import say_once
from tvm_xengine.kernels.cuda.compiler import cuda_compiler, exact_cuda_compiler
from tvm_xengine.kernels.cuda.runtime import why_no_cuda
from tvm_xengine.kernels.inplace import num_outputs, share_inplace_buffers
from tvm_xengine.kernels.lower.gpu_lowering import (
    lower_to_launches,
    require_launches,
    split_host_and_device,
)
from tvm_xengine.kernels.lower.pipeline import lower_to_explicit_memory, packed_call_passes
from tvm_xengine.kernels.schedules.gpu_rules import propose_gpu_schedules
from tvm_xengine.kernels.targets import DEVICE_KINDS, is_gpu

_logger = logging.getLogger(__name__)

Scheduler = Callable[[tirx.PrimFunc, Target], tirx.PrimFunc]
"""Gives a kernel loops that suit a target."""


@dataclass(frozen=True)
class DeviceKind:
    """What distinguishes the devices of one kind.

    Attributes
    ----------
    lower
        From a kernel, its target, its name (for messages) and the scheduler of processors to plain
        loops, which allocate nothing but what `ExplicitWorkspace` turns into a parameter.
        UnsupportedModuleError where there is no such code.
    compile
        From a module of lowered kernels of one target to code with the calling convention of
        tvm-ffi.
    device
        Where kernels of a target run; InvalidPlatformError where it is not on this machine.
    toolchain
        What else than TVM and LLVM determines the code of a target: names and versions.
    """

    lower: Callable[[tirx.PrimFunc, Target, str, Scheduler], tirx.PrimFunc]
    compile: Callable[[tvm.IRModule, Target], tvm.runtime.Module]
    device: Callable[[Target], tvm.runtime.Device]
    toolchain: Callable[[Target], Mapping[str, str]] = lambda _target: {}


def device_kind(target: Target) -> DeviceKind:
    """The kind of the devices that a target describes."""
    kinds = device_kinds()
    if target.kind.name in kinds:
        return kinds[target.kind.name]
    return GPU if is_gpu(target) else PROCESSOR


def device_kinds() -> Extended[DeviceKind]:
    """The kinds of other packages, by the kinds of TVM's targets."""
    own: dict[str, DeviceKind] = {}
    return extended(DEVICE_KINDS, own)


def device_of(target: Target) -> tvm.runtime.Device:
    """Where kernels of `target` run.

    Raises
    ------
    InvalidPlatformError
        When that is a device which this machine, or this build of TVM, does not have.
    """
    return device_kind(target).device(target)


def lower_for_processor(
    func: tirx.PrimFunc, target: Target, name: str, schedule: Scheduler
) -> tirx.PrimFunc:
    """Lower a kernel with a good schedule, or with its own loops where that goes wrong."""
    asked = _Lowering(func, target, name, schedule)
    if tvm.transform.PassContext.current().instruments:
        return _lowered_for_processor.__wrapped__(asked)  # they observe every pass
    return _lowered_for_processor(asked)


@dataclass(frozen=True, eq=False)
class _Lowering:
    """What decides how a kernel is lowered; equal where all of it but the name in messages is."""

    func: tirx.PrimFunc
    target: Target
    name: str
    schedule: Scheduler

    @cached_property
    def _facts(self) -> tuple[object, ...]:
        context = tvm.transform.PassContext.current()
        return (
            tvm_ffi.structural_hash(self.func),
            tuple(param.name for param in self.func.params),
            str(self.target),
            self.schedule,
            tuple(each.info.name for each in lower_to_explicit_memory(self.target).passes),
            context.opt_level,
            str((context.required_pass, context.disabled_pass, context.config)),
        )

    def __hash__(self) -> int:
        return hash(self._facts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Lowering):
            return NotImplemented
        return self._facts == other._facts and bool(tvm_ffi.structural_equal(self.func, other.func))


_KEPT_KERNELS = 1024
"""Lowered kernels that a process remembers: those of several large networks, a few megabytes."""


@lru_cache(maxsize=_KEPT_KERNELS)
def _lowered_for_processor(asked: _Lowering) -> tirx.PrimFunc:
    """Lowering takes 20 ms, and plans of other batches, budgets and precisions share kernels."""
    lowering = lower_to_explicit_memory(asked.target)
    try:
        return _lower(asked.schedule(asked.func, asked.target), lowering)
    except UnsupportedModuleError as error:
        # A schedule may move a load behind an in-place store; the loops as written then decide.
        _logger.info("%s keeps the loops it was written with: %s", asked.name, error)
    except (RuntimeError, TypeError, ValueError) as error:
        # Of a schedule or of TVM, which raises any of these; no kernel of the zoo meets one.
        reason = next(iter(str(error).strip().splitlines()), "")
        if not reason:  # what TVM makes of an interrupt that comes while it calls Python
            raise KeyboardInterrupt from error
        say_once(
            _logger,
            f"kernel {asked.name} keeps the loops it was written with, which may be slow, because its"
            f" schedule failed: {type(error).__name__}: {reason}",
        )
    return _lower(asked.func, lowering)


def compile_for_processor(module: tvm.IRModule, target: Target) -> tvm.runtime.Module:
    """Machine code of kernels, by the code generator of their target."""
    module = tvm.transform.Sequential(packed_call_passes())(module)
    require_no_allocation(module)
    return build(module, target)


def _lower_for_gpu(
    func: tirx.PrimFunc, target: Target, name: str, _schedule: Scheduler
) -> tirx.PrimFunc:
    """Lower a kernel with the first schedule that makes launches which a GPU can run."""
    reasons = []
    for proposed in propose_gpu_schedules(func, target):
        try:
            lowered = _lower(proposed, lower_to_launches(target))
            require_launches(lowered)
            return lowered
        except (RuntimeError, TypeError, ValueError, UnsupportedModuleError) as error:
            reasons.append(str(error).strip().splitlines()[-1])
    raise UnsupportedModuleError(
        f"kernel {name} has no schedule for {target.kind.name}: of {len(reasons)} tried, none could"
        f" be lowered ({'; '.join(reasons) or 'its loops are of no known form'}); leave the GPU out"
        " of the platform, or change the operator"
    )


def _compile_for_gpu(module: tvm.IRModule, target: Target) -> tvm.runtime.Module:
    """Functions that launch what an imported module holds.

    That is machine code where the GPU's runtime is on this machine, else source code, which cannot
    run.
    """
    host, device = split_host_and_device(module)
    require_no_allocation(host)
    compiled = build(host, Target({"kind": "llvm"}))
    if device.functions:
        compiled.import_module(build_launches(device, target))
    return compiled


def build_launches(device: tvm.IRModule, target: Target) -> tvm.runtime.Module:
    """What TVM's code generator for a GPU makes of launches."""
    with exact_cuda_compiler():
        return build(device, target)


def _gpu_toolchain(target: Target) -> Mapping[str, str]:
    return {"cuda": " ".join(cuda_compiler())} if target.kind.name == "cuda" else {}


def _gpu(target: Target) -> tvm.runtime.Device:
    kind = target.kind.name
    reason = why_no_cuda() if kind == "cuda" else None
    device = tvm.device(kind, 0)
    if reason is None and device.exist:
        return device
    raise InvalidPlatformError(
        f"target {kind}: expected a GPU and its driver on this machine, found none"
        f"{'' if reason is None else f': {reason}'};"
        " its kernels can be planned here with --costs roofline or predicted and given links,"
        " and compiled, but not run"
    )


def _lower(func: tirx.PrimFunc, lowering: tvm.transform.Pass) -> tirx.PrimFunc:
    shared = share_inplace_buffers(func, num_outputs(func))
    module = tvm.IRModule({_UNNAMED: shared.with_attr("global_symbol", _UNNAMED)})
    return lowering(module)[_UNNAMED]


_UNNAMED = "kernel"
"""What a function is called until its code, and so its symbol, is known."""


def build(module: tvm.IRModule, target: Target) -> tvm.runtime.Module:
    """What TVM's code generator for a target makes of a module."""
    with target:  # the CUDA compiler asks for the architecture
        return tvm.get_global_func(f"target.build.{target.kind.name}")(module, target)


def require_no_allocation(module: tvm.IRModule) -> None:
    """Raise UnsupportedModuleError where a function asks for memory while it runs."""
    for symbol, func in module.functions_items():
        called: set[str] = set()

        def visit(call: ir.Call, called: set[str] = called) -> None:
            called.add(str(call.op.name) if isinstance(call.op, ir.Op) else "")

        tvm_ffi.structural_walk(func.body, (ir.Call, visit))
        if "tirx.TVMBackendAllocWorkspace" in called:
            raise UnsupportedModuleError(f"kernel {symbol.name_hint} would allocate memory")


PROCESSOR = DeviceKind(lower_for_processor, compile_for_processor, lambda _target: tvm.cpu(0))
GPU = DeviceKind(_lower_for_gpu, _compile_for_gpu, _gpu, _gpu_toolchain)
