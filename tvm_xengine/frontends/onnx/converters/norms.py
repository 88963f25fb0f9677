"""Normalisations with more results than the normalised tensor."""

from __future__ import annotations

from onnx import helper
from tvm import relax

from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal
from tvm_xengine.relax_ir.own_ops import pointwise


def layer_norm(node: OnnxNode) -> relax.Expr:
    """The normalised tensor, the mean and the inverse deviation."""
    x, scale, dtype = node.input(0), node.input(1), node.dtype()
    rank = len(node.shape())
    axes = list(range(node.integer("axis", -1) % rank, rank))
    epsilon = node.number("epsilon", 1e-5)
    shift = node.optional(2)
    if shift is None:
        shift = node.emit(relax.op.zeros(node.shape(1), node.dtype(1)))
    wanted = str(helper.tensor_dtype_to_np_dtype(node.integer("stash_type", 1)))
    made = [node.emit(relax.op.nn.layer_norm(x, scale, shift, axes, epsilon))]
    if node.output_count > 1:
        wide = x if dtype == wanted else node.emit(relax.op.astype(x, wanted))
        made.append(node.emit(relax.op.mean(wide, axes, keepdims=True)))
    if node.output_count > 2:
        variance = relax.op.variance(wide, axes, keepdims=True)
        made.append(node.emit(relax.op.rsqrt(relax.op.add(variance, literal(epsilon, wanted)))))
    return relax.Tuple(made)


def batch_norm(node: OnnxNode) -> relax.Expr | None:
    """The tensor normalised by the batch, and the statistics as ONNX moves them."""
    if node.output_count == 1:
        return None
    x, dtype = node.input(0), node.dtype()
    epsilon, momentum = node.number("epsilon", 1e-5), node.number("momentum", 0.1)
    y = relax.op.nn.batch_norm(
        x, *(node.input(k) for k in range(1, 5)), 1, epsilon, momentum=momentum, training=True
    )
    axes = [k for k in range(len(node.shape())) if k != 1]
    # A file's momentum weighs the old value; `set_modes` has written that of the new one.
    moved = [
        relax.op.add(
            relax.op.multiply(literal(1 - momentum, dtype), node.input(position)),
            relax.op.multiply(literal(momentum, dtype), of_batch),
        )
        for position, of_batch in (
            (3, relax.op.mean(x, axes)),
            (4, relax.op.variance(x, axes)),
        )
    ]
    normalised = node.emit(relax.TupleGetItem(node.emit(y), 0))
    return relax.Tuple([normalised, *(node.emit(one) for one in moved)])


def lp_norm(node: OnnxNode) -> relax.Expr:
    """x over the sum of its absolute values or the root of the sum of its squares; 0 for zeros."""
    x, dtype = node.input(0), node.dtype()
    axis = [node.integer("axis", -1)]
    if node.integer("p", 2) == 1:
        norm = node.emit(relax.op.sum(relax.op.abs(x), axis, keepdims=True))
    else:
        squares = relax.op.sum(relax.op.multiply(x, x), axis, keepdims=True)
        norm = node.emit(pointwise("safe_sqrt", node.emit(squares)))
    return node.emit(_over(x, norm, dtype))


def _over(x: relax.Expr, norm: relax.Expr, dtype: str) -> relax.Expr:
    zero = relax.op.equal(norm, literal(0, dtype))
    quotient = relax.op.divide(x, relax.op.where(zero, literal(1, dtype), norm))
    return relax.op.where(zero, literal(0, dtype), quotient)


CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "LpNormalization": lp_norm,
}
