"""Ops that are differentiated by decomposition into simpler ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps, read_forward_ops
from tvm_xengine.relax_ir.own_ops import pointwise
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.emitter import dtype_of, shape_of

Expansion = Callable[[relax.Call, Sequence[relax.Var]], relax.Expr]


def expand_composites(source: ForwardOps) -> ForwardOps:
    """The same function with every composite op decomposed."""
    while any(is_composite(op) for op in source.ops):
        renamed: dict[relax.Var, relax.Expr] = {}
        ops: list[ForwardOp] = []
        for op in source.ops:
            current = replace(op, operands=_renamed(op.operands, renamed))
            if not is_composite(op):
                ops.append(current)
                continue
            inlined, outputs = inline(expanded(current), current.operands, current.name)
            ops += inlined
            renamed.update(zip(op.results, outputs, strict=True))
        returned = _renamed(source.returned, renamed)
        source = replace(source, ops=tuple(ops)).returning(returned)
    return source


def is_composite(op: ForwardOp) -> bool:
    """Whether an op is differentiated by decomposition."""
    if op.op == "relax.median":
        return op.call.attrs.axis is None or not len(op.call.attrs.axis)
    if op.op in ("relax.full", "relax.full_like"):
        return _is_infinite(op.call.args[1])
    if op.op == "relax.divide":
        return _is_zero(op.call.args[1]) and "float" in dtype_of(op.operands[0])
    return op.op in COMPOSITES


def expanded(op: ForwardOp) -> ForwardOps:
    """The function of its operands that a composite op stands for."""
    params = [relax.Var(f"operand_{k}", value.ty) for k, value in enumerate(op.operands)]
    builder = relax.BlockBuilder()
    with builder.function("composite", params=params):
        with builder.dataflow():
            value = COMPOSITES[op.op](op.rebuild(params), params)
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return read_forward_ops(builder.get()["composite"])


def inline(
    inner: ForwardOps, operands: Sequence[relax.Expr], name: str
) -> tuple[list[ForwardOp], tuple[relax.Expr, ...]]:
    """The ops of a function applied to tensors, and what it returns; the last op gets the name."""
    renamed = dict(zip(inner.params, operands, strict=True))
    ops = [replace(op, operands=_renamed(op.operands, renamed)) for op in inner.ops]
    last = len(ops) - 1
    named = [
        replace(op, name=name if k == last else f"{name}_{op.op.split('.')[-1]}")
        for k, op in enumerate(ops)
    ]
    return named, _renamed(inner.outputs, renamed)


def _renamed(
    values: Sequence[relax.Expr], renamed: dict[relax.Var, relax.Expr]
) -> tuple[relax.Expr, ...]:
    return tuple(
        renamed.get(value, value) if isinstance(value, relax.Var) else value for value in values
    )


def _attention(call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    """softmax(q k^T * scale + bias) v, the tensors being (batch, sequence, heads, width)."""
    query, key, value, *bias = operands
    width = shape_of(query)[-1]
    scale = 1 / sqrt(width) if call.attrs.scale is None else float(call.attrs.scale.value)
    heads_first = [0, 2, 1, 3]
    query, key, value = (relax.op.permute_dims(x, heads_first) for x in (query, key, value))
    scores = relax.op.matmul(query, relax.op.permute_dims(key, [0, 1, 3, 2]))
    scores = relax.op.multiply(scores, relax.const(scale, dtype_of(operands[0])))
    if bias:
        scores = relax.op.add(scores, bias[0])
    if call.attrs.causal_mask is not None:
        mask = _causal_mask(operands, str(call.attrs.causal_mask))
        scores = relax.op.add(scores, relax.const(mask, dtype_of(operands[0])))
    mixed = relax.op.matmul(relax.op.nn.softmax(scores, axis=-1), value)
    return relax.op.permute_dims(mixed, heads_first)


def _causal_mask(operands: Sequence[relax.Var], alignment: str) -> Array:
    rows, columns = shape_of(operands[0])[1], shape_of(operands[1])[1]
    offset = 0 if alignment == "TopLeft" else columns - rows
    visible = np.tri(rows, columns, offset)
    return np.where(visible > 0, 0.0, -1e30)


def _std(call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    axis = call.attrs.axis
    axes = None if axis is None else [int(a) for a in axis]
    variance = relax.op.variance(operands[0], axes, keepdims=bool(call.attrs.keepdims))
    return relax.op.sqrt(variance)


def _triangle(keep: Callable[[int, int, int], object]) -> Expansion:
    def expansion(call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
        (x,) = operands
        *_, rows, columns = shape_of(x)
        mask = np.asarray(keep(rows, columns, int(call.args[1].value)))
        return relax.op.multiply(x, relax.const(mask, dtype_of(x)))

    return expansion


def _is_infinite(value: relax.Expr) -> bool:
    return isinstance(value, tvm.ir.GenericConst) and bool(np.isinf(value.value.numpy()).all())


def _is_zero(value: relax.Expr) -> bool:
    return isinstance(value, tvm.ir.GenericConst) and not value.value.numpy().any()


def _divide_by_zero(_call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    """A product with infinity, which is the same; TVM refuses a division by a zero that it knows."""
    x, zero = operands
    infinity = pointwise("copysign", relax.const(float("inf"), dtype_of(zero)), zero)
    return relax.op.multiply(x, infinity)


def _full(call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    """The value at every place; TVM's own kernel takes no infinite one."""
    like, fill = call.args[0], operands[-1]
    shape = like if isinstance(like, relax.ShapeExpr) else like.ty.shape
    dtype = str(call.attrs.dtype or dtype_of(operands[0]))
    value = fill if dtype_of(fill) == dtype else relax.op.astype(fill, dtype)
    return relax.op.broadcast_to(value, shape)


def _median_of_all(call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    """As the median along the only axis of the flat tensor."""
    (x,) = operands
    median = relax.TupleGetItem(relax.op.median(relax.op.flatten(x), [0], False), 0)
    rank = len(shape_of(x)) if bool(call.attrs.keepdims) else 0
    return relax.op.reshape(median, (1,) * rank)


def _meshgrid(call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    """Each vector along its own axis, repeated along the others."""
    shape = [shape_of(x)[0] if shape_of(x) else 1 for x in operands]
    order = list(range(len(shape)))
    if str(call.attrs.indexing) == "xy" and len(shape) > 1:
        order[:2] = [1, 0]
    whole = [shape[k] for k in order]
    return relax.Tuple(
        [
            relax.op.broadcast_to(
                relax.op.reshape(x, [shape[k] if axis == k else 1 for axis in order]), whole
            )
            for k, x in enumerate(operands)
        ]
    )


def _pixel_shuffle(call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    (x,) = operands
    factor = int(call.attrs.upscale_factor)
    *outer, channels, height, width = shape_of(x)
    rank = len(outer)
    split = relax.op.reshape(x, (*outer, channels // factor**2, factor, factor, height, width))
    order = [*range(rank), rank, rank + 3, rank + 1, rank + 4, rank + 2]
    moved = relax.op.permute_dims(split, order)
    return relax.op.reshape(moved, (*outer, channels // factor**2, height * factor, width * factor))


def _outer(_call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    left, right = operands
    column = relax.op.reshape(left, (shape_of(left)[0], 1))
    return relax.op.multiply(column, relax.op.reshape(right, (1, shape_of(right)[0])))


def _log_add_exp(_call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    """max(a, b) + log(1 + exp(-|a - b|))."""
    left, right = operands
    distance = relax.op.abs(relax.op.subtract(left, right))
    rest = relax.op.log(
        relax.op.add(relax.op.exp(relax.op.negative(distance)), relax.const(1.0, dtype_of(left)))
    )
    return relax.op.add(relax.op.maximum(left, right), rest)


def _fused_multiply_add(_call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    return relax.op.add(relax.op.multiply(operands[0], operands[1]), operands[2])


def _cross_entropy_with_logits(_call: relax.Call, operands: Sequence[relax.Var]) -> relax.Expr:
    """-sum(prediction * label) / batch, as Relax defines it."""
    prediction, labels = operands
    total = relax.op.negative(relax.op.sum(relax.op.multiply(prediction, labels)))
    shape = shape_of(prediction)
    batch = shape[0] if len(shape) > 1 else 1
    return relax.op.divide(total, relax.const(float(batch), dtype_of(prediction)))


COMPOSITES: dict[str, Expansion] = {
    "relax.divide": _divide_by_zero,
    "relax.median": _median_of_all,
    "relax.ewise_fma": _fused_multiply_add,
    "relax.full": _full,
    "relax.full_like": _full,
    "relax.log_add_exp": _log_add_exp,
    "relax.meshgrid": _meshgrid,
    "relax.nn.attention": _attention,
    "relax.nn.attention_bias": _attention,
    "relax.nn.cross_entropy_with_logits": _cross_entropy_with_logits,
    "relax.nn.pixel_shuffle": _pixel_shuffle,
    "relax.outer": _outer,
    "relax.std": _std,
    "relax.tril": _triangle(lambda rows, columns, k: np.tri(rows, columns, k)),
    "relax.triu": _triangle(lambda rows, columns, k: 1 - np.tri(rows, columns, k - 1)),
}
