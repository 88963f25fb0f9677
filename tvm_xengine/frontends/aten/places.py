"""Elements and slices read or written by their place."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.aten.converter import Converter
from tvm_xengine.frontends.model import static_shape


def select(builder: relax.BlockBuilder, x: relax.Expr, dim: int, index: int) -> relax.Expr:
    """The slice at a position, without the axis."""
    shape = static_shape(x.ty)
    axis = dim % len(shape)
    position = index % shape[axis]
    part = relax.op.strided_slice(x, [axis], [position], [position + 1])
    return builder.emit(relax.op.reshape(part, shape[:axis] + shape[axis + 1 :]))


def scatter_add(
    builder: relax.BlockBuilder, x: relax.Expr, dim: int, index: relax.Expr, source: relax.Expr
) -> relax.Expr:
    """x with the leading part of `source`, shaped like `index`, added at its places."""
    shape = static_shape(index.ty)
    if shape != static_shape(source.ty):
        axes = list(range(len(shape)))
        source = builder.emit(relax.op.strided_slice(source, axes, [0] * len(axes), list(shape)))
    axis = dim % len(shape)
    return builder.emit(relax.op.scatter_elements(x, index, source, axis, "add"))


CONVERTERS: dict[str, Converter] = {
    "scatter_add.default": scatter_add,
    "select.int": select,
}
