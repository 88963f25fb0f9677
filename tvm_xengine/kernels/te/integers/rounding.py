"""From sums in int32 to int8, and between int8 and float32."""

from __future__ import annotations

import tvm
from tvm import te
from tvm.tirx import Expr, Var

_LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
"""Least and greatest number of each type."""


def requantized(scaled: Expr, zero: int, lowest: int, highest: int, dtype: str = "int8") -> Expr:
    """``clip(round_half_even(scaled) + zero, lowest, highest)``.

    The bounds are applied first, which gives the same and keeps the conversion in range.
    """
    bounded = tvm.tirx.max(scaled, tvm.tirx.const(float(lowest - zero), "float32"))
    bounded = tvm.tirx.min(bounded, tvm.tirx.const(float(highest - zero), "float32"))
    whole = tvm.tirx.nearbyint(bounded).astype("int32")
    return (whole + tvm.tirx.const(zero, "int32")).astype(dtype)


def centred(value: Expr, zero: int) -> Expr:
    """``value - zero`` in int32."""
    return value.astype("int32") - tvm.tirx.const(zero, "int32")


def quantize(x: te.Tensor, *, scale: float, zero: int, signed: int = 1) -> te.Tensor:
    """``clip(round(x / scale) + zero)``, as QuantizeLinear of ONNX."""
    dtype = "int8" if signed else "uint8"
    divisor = tvm.tirx.const(scale, "float32")

    def element(*i: Var) -> Expr:
        return requantized(tvm.tirx.div(x(*i), divisor), zero, *_LIMITS[dtype], dtype)

    return te.compute(x.shape, element, name="quantized")


def dequantize(q: te.Tensor, *, scale: float, zero: int) -> te.Tensor:
    """``(q - zero) * scale``, as DequantizeLinear of ONNX."""
    factor = tvm.tirx.const(scale, "float32")
    return te.compute(
        q.shape, lambda *i: centred(q(*i), zero).astype("float32") * factor, name="real"
    )


def dequantize_channels(
    q: te.Tensor, scale: te.Tensor, zero: te.Tensor | None = None, *, axis: int
) -> te.Tensor:
    """``(q - zero[k]) * scale[k]`` for the place k along an axis; without zero points they are 0."""

    def element(*i: Var) -> Expr:
        whole = q(*i).astype("int32")
        if zero is not None:
            whole = whole - zero(i[axis]).astype("int32")
        return whole.astype("float32") * scale(i[axis])

    return te.compute(q.shape, element, name="real")


def lookup(q: te.Tensor, table: te.Tensor) -> te.Tensor:
    """``table[q + 128]``: any function of one element."""
    return te.compute(q.shape, lambda *i: table(q(*i).astype("int32") + 128), name="looked_up")
