"""A kernel prepared for a target: scheduled and lowered, with known memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, tirx
from tvm.target import Target

from tvm_xengine.kernels.device_kinds import Scheduler, device_kind
from tvm_xengine.kernels.identity import kernel_key
from tvm_xengine.kernels.inplace import num_outputs
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.stages import Stage
from tvm_xengine.kernels.lower.empty_reductions import without_empty_reductions
from tvm_xengine.kernels.lower.explicit_workspace import workspace_bytes
from tvm_xengine.kernels.schedules.rules import schedule_kernel
from tvm_xengine.relax_ir.kernel_attributes import InplacePair, inplace_pairs, kernel_hash
from tvm_xengine.scheduling.sizes import tensor_bytes


@dataclass(frozen=True)
class TensorSpec:
    """Shape and element type of a tensor that a kernel reads or writes."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes of a compact tensor."""
        return tensor_bytes(self.shape, self.dtype)


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel that :func:`compile_kernels` can compile for the target it was prepared for.

    The compiled function takes ``(inputs..., outputs...)``, and the workspace behind them when
    `workspace_bytes` is not 0, as tensors of zero byte offset that start at a multiple of 64. It
    allocates nothing. For a GPU it launches, and the tensors lie there. The two tensors of an
    in-place pair must be the same tensor. A kernel that calls a library takes its context last
    (:mod:`tvm_xengine.kernels.library.context`).

    Attributes
    ----------
    func
        The lowered function; its last parameter is the workspace, if there is one.
    symbol
        Name of the compiled function, different for different targets.
    name
        What the kernel is called in progress reports.
    key
        `kernel_key` of the code: what compiled and measured kernels are filed under.
    inputs, outputs
        What the parameters are, the workspace excluded.
    workspace_bytes
        Size of the ``uint8`` workspace.
    inplace
        Outputs that lie in the memory of an input.
    is_parallel
        Whether the kernel runs on several threads.
    source
        Name of the kernel source it comes from.
    function
        `kernel_hash` of the function it was made of, the same for every target and source; empty
        where it was made of none.
    library
        What a library computes in it, None where all of it is generated.
    library_flops
        Arithmetic operations of a kernel whose code does not show them, because a library has it.
    library_stages
        The functions that the library runs for the call, where the library says them.
    """

    func: tirx.PrimFunc
    symbol: str
    name: str
    key: str
    target: Target
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    workspace_bytes: int
    inplace: tuple[InplacePair, ...]
    is_parallel: bool
    source: str = "tir"
    function: str = ""
    library: LibraryCall | None = None
    library_flops: float = 0.0
    library_stages: tuple[Stage, ...] = ()

    @property
    def has_tensors_apart(self) -> bool:
        """Whether the code relies on its tensors not overlapping; in-place kernels do not."""
        return bool(self.func.attrs.get("tirx.noalias", False))


def distinct_kernels(kernels: Iterable[DeviceKernel]) -> list[DeviceKernel]:
    """`kernels` without repeats, in their order."""
    return list({kernel.symbol: kernel for kernel in kernels}.values())


def prepare_kernel(
    func: tirx.PrimFunc,
    target: Target,
    name: str = "kernel",
    *,
    schedule: Scheduler = schedule_kernel,
) -> DeviceKernel:
    """Schedule and lower a kernel for a target, with all its memory in its parameters.

    Parameters
    ----------
    func
        A function in destination-passing style: inputs first, then the outputs it stores to.
    name
        What the kernel is called in progress reports.
    schedule
        How its loops are chosen for a processor; GPUs have rules of their own.

    Raises
    ------
    UnsupportedModuleError
        When `func` stores to no parameter, or declares an in-place pair it must not have, or no
        rule makes launches of it that a GPU can run.
    """
    outputs = num_outputs(func)
    plain = without_empty_reductions(func)
    lowered = device_kind(target).lower(plain, target, name, schedule)
    inplace = inplace_pairs(func)
    toolchain = device_kind(target).toolchain(target)
    key = kernel_key(lowered, target, inplace=str(inplace), **toolchain)
    symbol = kernel_symbol(key)
    specs = tensor_specs(func)
    return DeviceKernel(
        func=lowered.with_attr("global_symbol", symbol),
        symbol=symbol,
        name=name,
        key=key,
        target=target,
        inputs=specs[: len(specs) - outputs],
        outputs=specs[len(specs) - outputs :],
        workspace_bytes=workspace_bytes(lowered),
        inplace=inplace,
        is_parallel=_has_parallel_loop(lowered),
        function=kernel_hash(func),
    )


def kernel_symbol(key: str) -> str:
    """Name of the compiled function of a kernel."""
    return f"kernel_{key}"


def tensor_specs(func: tirx.PrimFunc) -> tuple[TensorSpec, ...]:
    """What the parameters of a kernel are."""
    return tuple(_spec(param) for param in func.params)


def _spec(param: ir.Var) -> TensorSpec:
    return TensorSpec(tuple(int(extent) for extent in param.ty.shape), str(param.ty.dtype.dtype))


def _has_parallel_loop(func: tirx.PrimFunc) -> bool:
    kinds: set[int] = set()
    tvm_ffi.structural_walk(func.body, (tirx.For, lambda loop: kinds.add(int(loop.kind))))
    return int(tirx.ForKind.PARALLEL) in kinds
