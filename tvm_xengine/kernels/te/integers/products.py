"""Convolutions and dense layers of int8, summed in int32.

Zero points of the data are part of the bias: ``sum (q - z) w = sum q w - z sum w``. Pixels outside an image
are the zero point, so this holds at borders, too.
"""

from __future__ import annotations

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.integers.rounding import Rounding, centred
from tvm_xengine.kernels.te.integers.windows import Window


def integer_convolution(
    data: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor,
    factor: te.Tensor,
    *,
    window: Window,
    rounding: Rounding,
    output_shape: tuple[int, ...],
) -> te.Tensor:
    """A convolution, layout (batch, channel, space...), weight (out, in / groups, space...)."""
    in_group = int(weight.shape[1])
    groups = int(data.shape[1]) // in_group
    out_group = output_shape[1] // groups
    c = te.reduce_axis((0, in_group), name="c")
    k = window.axes()

    def term(n: Var, o: Var, *q: Var) -> Expr:
        channel = o // out_group * in_group + c if groups > 1 else c
        value = window.read(data, (n, channel), q, k)
        return te.sum(value.astype("int32") * weight(o, c, *k).astype("int32"), axis=[c, *k])

    total = te.compute(output_shape, term, name="total")

    def element(n: Var, o: Var, *q: Var) -> Expr:
        scaled = (total(n, o, *q) + bias(o)).astype("float32") * factor(o)
        return rounding.of(scaled)

    return te.compute(output_shape, element, name="convolved")


def integer_dense(
    data: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor,
    factor: te.Tensor,
    *,
    rounding: Rounding,
) -> te.Tensor:
    """``data @ weight.T + bias`` over the last axis; weight (out, in)."""
    out, inner = [int(extent) for extent in weight.shape]
    c = te.reduce_axis((0, inner), name="c")
    shape = (*data.shape[:-1], out)
    total = te.compute(
        shape,
        lambda *i: te.sum(
            data(*i[:-1], c).astype("int32") * weight(i[-1], c).astype("int32"), axis=c
        ),
        name="total",
    )

    def element(*i: Var) -> Expr:
        scaled = (total(*i) + bias(i[-1])).astype("float32") * factor(i[-1])
        return rounding.of(scaled)

    return te.compute(shape, element, name="dense")


def integer_sum(
    left: te.Tensor,
    right: te.Tensor,
    *,
    zeros: tuple[int, ...],
    factors: tuple[float, ...],
    rounding: Rounding,
    output_shape: tuple[int, ...],
) -> te.Tensor:
    """The sum of two tensors that broadcast, each with a factor to the scale of the result."""

    def element(*i: Var) -> Expr:
        terms = [
            _at(x, i, z).astype("float32") * tvm.tirx.const(f, "float32")
            for x, z, f in zip((left, right), zeros, factors, strict=True)
        ]
        return rounding.of(terms[0] + terms[1])

    return te.compute(output_shape, element, name="sum")


def integer_product(
    left: te.Tensor,
    right: te.Tensor,
    *,
    zeros: tuple[int, ...],
    factor: float,
    rounding: Rounding,
    output_shape: tuple[int, ...],
) -> te.Tensor:
    """The product of two tensors that broadcast, element by element."""

    def element(*i: Var) -> Expr:
        whole = _at(left, i, zeros[0]) * _at(right, i, zeros[1])
        scaled = whole.astype("float32") * tvm.tirx.const(factor, "float32")
        return rounding.of(scaled)

    return te.compute(output_shape, element, name="product")


def _at(x: te.Tensor, index: tuple[Var, ...], zero: int) -> Expr:
    own = index[len(index) - len(x.shape) :]
    at = [0 if int(extent) == 1 else i for i, extent in zip(own, x.shape, strict=True)]
    return centred(x(*at), zero)
