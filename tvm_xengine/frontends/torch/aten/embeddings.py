"""Rows of a table, looked up by number."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.relax_ir.types import static_shape


def embedding(
    builder: Builder,
    weight: Expr,
    indices: Expr,
    padding_index: int,
    scale_by_frequency: bool,
    _sparse: bool,
) -> Expr:
    """The row of each index; no gradient reaches that of the padding (below 0: there is none)."""
    if scale_by_frequency:
        refuse_scaling()
    shape, width = static_shape(indices.ty), static_shape(weight.ty)[1]
    places = builder.emit(relax.op.astype(indices, "int32"))
    flat = places if len(shape) == 1 else builder.emit(relax.op.reshape(places, (-1,)))
    rows = builder.emit(relax.op.take(weight, flat, axis=0))
    if padding_index >= 0:
        is_padding = relax.op.equal(flat, relax.const(padding_index, "int32"))
        column = builder.emit(relax.op.expand_dims(builder.emit(is_padding), -1))
        fixed = builder.emit(relax.op.grad.no_grad(rows))
        rows = builder.emit(relax.op.where(column, fixed, rows))
    return rows if len(shape) == 1 else builder.emit(relax.op.reshape(rows, (*shape, width)))


def refuse_scaling() -> None:
    """Refuse gradients that are divided by how often their row was read."""
    raise UnsupportedModelError("scale_grad_by_freq is not supported")


CONVERTERS: dict[str, Converter] = {"embedding.default": embedding}
