"""Casts to narrow types, held in wider ones."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.onnx.narrow_types import (
    NARROW,
    beyond,
    bounds_between,
    magnitudes,
    of_nan,
)
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal


def cast(node: OnnxNode) -> relax.Expr | None:
    """The value of a narrow type that is nearest; other casts are left to TVM.

    Like that of Round, its derivative is zero.
    """
    kind = node.text(NARROW, "")
    if not kind:
        return None
    if "INT" in kind:
        return _wrapped(node, kind)
    saturate = bool(node.integer("saturate", 1))
    mode = node.text("round_mode", "up") if kind == "FLOAT8E8M0" else "nearest"
    return rounded(node, node.input(0), kind, saturate=saturate, round_mode=mode)


def _wrapped(node: OnnxNode, kind: str) -> relax.Expr:
    """The lowest bits of the whole part."""
    bits, signed = int(kind[-1]), not kind.startswith("U")
    x = relax.op.astype(node.input(0), "int32")
    half = 1 << (bits - 1) if signed else 0
    low = relax.op.bitwise_and(
        relax.op.add(x, literal(half, "int32")), literal((1 << bits) - 1, "int32")
    )
    held = "int8" if signed else "uint8"
    return node.emit(relax.op.astype(relax.op.subtract(low, literal(half, "int32")), held))


def rounded(
    node: OnnxNode, x: relax.Expr, kind: str, *, saturate: bool, round_mode: str = "nearest"
) -> relax.Expr:
    """Numbers rounded to the values of a narrow float, in the type that holds it."""
    held = "float32" if kind == "FLOAT8E8M0" else "float16"
    x = node.emit(x if str(x.ty.dtype) == "float32" else relax.op.astype(x, "float32"))
    size = node.emit(relax.op.abs(x))
    bounds = literal(bounds_between(kind, round_mode), "float32")
    places = node.emit(relax.op.bucketize(size, bounds, out_int32=True))
    made = node.emit(relax.op.take(literal(magnitudes(kind), "float32"), places, 0, mode="clip"))
    if kind == "FLOAT8E8M0":  # it has no sign, and no infinity
        special = relax.op.logical_not(relax.op.isfinite(x))
        made = relax.op.where(special, literal(float("nan"), "float32"), made)
        return node.emit(made)
    last, overflow = beyond(kind)
    if not saturate:
        is_beyond = relax.op.greater(size, literal(last, "float32"))
        made = relax.op.where(is_beyond, literal(overflow, "float32"), made)
    negative = relax.op.less(x, literal(0.0, "float32"))
    made = relax.op.where(negative, relax.op.negative(made), made)
    made = relax.op.where(relax.op.isnan(x), literal(of_nan(kind), "float32"), made)
    return node.emit(relax.op.astype(made, held))


CONVERTERS: dict[str, Converter] = {"Cast": cast}
