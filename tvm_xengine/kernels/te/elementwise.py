"""Derivatives of element-by-element ops as kernels, summed where an operand was broadcast."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.accumulate import sum_dtype, summed
from tvm_xengine.kernels.te.pointwise.function import numbers_for

Formula = Callable[..., Expr]


def sum_to_shape(data: te.Tensor, *, shape: tuple[int, ...]) -> te.Tensor:
    """The sum over the axes along which `shape` was broadcast to the shape of `data`."""
    return _summed(lambda value: value, [data], shape)


def derivative_kernel(name: str, formula: Formula) -> Callable[..., te.Tensor]:
    """A kernel called `name` that applies a formula to each element of tensors that broadcast.

    The kernel takes the tensors that the formula takes and the ``shape`` of the operand whose
    gradient it is: axes along which the operand was broadcast are summed.
    """

    def kernel(*tensors: te.Tensor, shape: tuple[int, ...], **options: float) -> te.Tensor:
        values = numbers_for(sum_dtype(tensors[0].dtype), options.values())
        numbers = dict(zip(options, values, strict=True))
        return _summed(lambda *values: formula(*values, **numbers), tensors, shape)

    kernel.__name__ = name
    return kernel


def broadcast_shape(*shapes: Sequence[Expr]) -> list[int]:
    """The shape that several shapes broadcast to."""
    rank = max(len(shape) for shape in shapes)
    padded = [[1] * (rank - len(shape)) + [int(extent) for extent in shape] for shape in shapes]
    return [0 if 0 in extents else max(extents) for extents in zip(*padded, strict=True)]


def read(tensor: te.Tensor, at: Sequence[Expr]) -> Expr:
    """The element of a tensor that broadcasts to position `at`."""
    offset = len(at) - len(tensor.shape)
    return tensor(
        *(0 if int(extent) == 1 else at[offset + a] for a, extent in enumerate(tensor.shape))
    )


def _summed(formula: Formula, tensors: Sequence[te.Tensor], shape: tuple[int, ...]) -> te.Tensor:
    full = broadcast_shape(shape, *(tensor.shape for tensor in tensors))
    offset = len(full) - len(shape)
    over = {
        a: te.reduce_axis((0, extent), name=f"r{a}")
        for a, extent in enumerate(full)
        if a < offset or (shape[a - offset] == 1 and extent != 1)
    }

    def gradient(*i: Var) -> Expr:
        at = [over[a] if a in over else i[a - offset] for a in range(len(full))]
        # Numbers in a formula have float32, and would make more of a shorter type.
        wide = (read(tensor, at).astype(sum_dtype(tensor.dtype)) for tensor in tensors)
        return formula(*wide)

    dtype = tensors[0].dtype
    if not over:
        return te.compute(shape, lambda *i: gradient(*i).astype(dtype), name="gradient")
    return summed(shape, gradient, list(over.values()), dtype, "gradient")
