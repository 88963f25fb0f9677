"""Gradient of image resizing: every input pixel gathers the output pixels that read it."""

from __future__ import annotations

from math import ceil

import tvm
from tvm import te
from tvm.tirx import Expr, Var


def resize_backward(
    output_gradient: te.Tensor,
    *,
    shape: tuple[int, ...],
    linear: bool,
    coordinates: str,
    rounding: str,
) -> te.Tensor:
    """Gradient of nearest-neighbour or (bi-, tri-) linear interpolation of the space axes.

    An axis is interpolated with the weights w(q, i) of input i in output q, so
    dx[i] = sum_q w(q, i) dy[q], where q runs over the few outputs near i only.
    """
    _, _, *space = shape
    _, _, *out_space = [int(extent) for extent in output_gradient.shape]
    reach = [_reach(space[a], out_space[a], coordinates) for a in range(len(space))]
    k = [te.reduce_axis((0, extent), name=f"k{a}") for a, extent in enumerate(reach)]
    dtype = output_gradient.dtype

    def data_gradient(n: Var, c: Var, *i: Var) -> Expr:
        at, weight, inside = [], tvm.tirx.const(1, dtype), []
        for a in range(len(space)):
            scale = _scale(space[a], out_space[a], coordinates)
            first = te.floor((i[a].astype(dtype) - 1.5) / scale).astype("int32") - 1
            position = first + k[a]
            inside += [position >= 0, position < out_space[a]]
            source = _source(position.astype(dtype), scale, space[a], out_space[a], coordinates)
            weigh = _linear_weight if linear else _nearest_weight
            weight = weight * weigh(source, i[a], space[a], rounding, dtype)
            at.append(position)
        zero = tvm.tirx.const(0, dtype)
        value = tvm.tirx.if_then_else(
            tvm.tirx.all(*inside), output_gradient(n, c, *at) * weight, zero
        )
        return te.sum(value, axis=k)

    return te.compute(shape, data_gradient, name="data_gradient")


def _scale(size: int, out_size: int, coordinates: str) -> float:
    if coordinates == "align_corners":
        return max(size - 1, 1e-6) / max(out_size - 1, 1)
    return size / out_size


def _reach(size: int, out_size: int, coordinates: str) -> int:
    """How many neighbouring outputs may read one input; the border pixels are read by more."""
    return min(ceil(3 / _scale(size, out_size, coordinates)) + 5, 2 * out_size + 6)


def _source(position: Expr, scale: float, size: int, out_size: int, coordinates: str) -> Expr:
    """Where in the input an output pixel lies."""
    if coordinates in ("align_corners", "asymmetric"):
        return position * scale
    centred = (position + 0.5) * scale - 0.5
    if coordinates == "pytorch_half_pixel" and out_size == 1:
        return position * 0.0
    return centred


def _linear_weight(source: Expr, i: Var, size: int, _rounding: str, dtype: str) -> Expr:
    clamped = te.max(te.min(source, tvm.tirx.const(size - 1, dtype)), tvm.tirx.const(0, dtype))
    distance = te.abs(clamped - i.astype(dtype))
    return te.max(tvm.tirx.const(1, dtype) - distance, tvm.tirx.const(0, dtype))


def _nearest_weight(source: Expr, i: Var, size: int, rounding: str, dtype: str) -> Expr:
    slack = 1e-5
    if rounding == "floor":
        chosen = te.floor(source + slack)
    elif rounding == "ceil":
        chosen = te.ceil(source - slack)
    elif rounding == "round_prefer_ceil":
        chosen = te.floor(source + 0.5)
    elif rounding == "round_prefer_floor":
        chosen = te.ceil(source - 0.5)
    else:
        chosen = te.round(source)
    chosen = te.max(te.min(chosen, tvm.tirx.const(size - 1, dtype)), tvm.tirx.const(0, dtype))
    one, zero = tvm.tirx.const(1, dtype), tvm.tirx.const(0, dtype)
    return tvm.tirx.Select(chosen == i.astype(dtype), one, zero)
