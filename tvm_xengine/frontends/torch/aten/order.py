"""Elements in order, and those at a place of it."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Converter
from tvm_xengine.frontends.torch.aten.places import select
from tvm_xengine.relax_ir.types import static_shape


def sort(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    _stable: bool | None,
    dim: int = -1,
    descending: bool = False,
) -> list[relax.Expr]:
    """(elements in order, their positions); equal ones stay in the order they had."""
    order = argsort(builder, x, _stable, dim, descending)
    return [builder.emit(relax.op.gather_elements(x, order, axis=dim)), order]


def argsort(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    _stable: bool | None,
    dim: int = -1,
    descending: bool = False,
) -> relax.Expr:
    """The positions of the elements in order."""
    return builder.emit(relax.op.argsort(x, dim, descending, dtype="int64"))


def kthvalue(
    builder: relax.BlockBuilder, x: relax.Expr, k: int, dim: int = -1, keepdim: bool = False
) -> list[relax.Expr]:
    """(the k-th smallest element along an axis, its position)."""
    axis = dim % len(static_shape(x.ty))
    order = argsort(builder, x, True, axis)
    place = builder.emit(relax.op.strided_slice(order, [axis], [k - 1], [k]))
    value = builder.emit(relax.op.gather_elements(x, place, axis=axis))
    return [value, place] if keepdim else [select(builder, one, axis, 0) for one in (value, place)]


CONVERTERS: dict[str, Converter] = {
    "argsort.stable": argsort,
    "kthvalue.default": kthvalue,
    "sort.stable": sort,
}
