"""From sums in int32 to int8, and between int8 and float32."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import te
from tvm.tirx import Expr, Var


@dataclass(frozen=True)
class Rounding:
    """From float32 to the whole numbers of a tensor with a zero point.

    Attributes
    ----------
    lowest, highest
        Bounds of the result; by default those of int8.
    """

    zero: int
    lowest: int = -128
    highest: int = 127
    dtype: str = "int8"

    def of(self, scaled: Expr) -> Expr:
        """``clip(round_half_even(scaled) + zero, lowest, highest)``.

        The bounds are applied first, which gives the same and keeps the conversion in range.
        """
        bounded = tvm.tirx.max(scaled, tvm.tirx.const(float(self.lowest - self.zero), "float32"))
        bounded = tvm.tirx.min(bounded, tvm.tirx.const(float(self.highest - self.zero), "float32"))
        whole = tvm.tirx.nearbyint(bounded).astype("int32")
        return (whole + tvm.tirx.const(self.zero, "int32")).astype(self.dtype)


def centred(value: Expr, zero: int) -> Expr:
    """``value - zero`` in int32."""
    return value.astype("int32") - tvm.tirx.const(zero, "int32")


def quantize(x: te.Tensor, *, scale: float, zero: int, signed: int = 1) -> te.Tensor:
    """``clip(round(x / scale) + zero)``, as QuantizeLinear of ONNX."""
    rounding = Rounding(zero) if signed else Rounding(zero, 0, 255, "uint8")
    divisor = tvm.tirx.const(scale, "float32")
    return te.compute(
        x.shape, lambda *i: rounding.of(tvm.tirx.div(x(*i), divisor)), name="quantized"
    )


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
