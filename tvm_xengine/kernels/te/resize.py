"""Image resizing: nearest neighbour, linear and cubic interpolation along every space axis.

An output element q of an axis reads a few input elements p with weights w(q, p). Positions beyond
the border mean the element at the border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

import tvm
from tvm import te
from tvm.tirx import Expr, Var


@dataclass(frozen=True)
class Interpolation:
    """How an output element is made along one axis; names as in ONNX's Resize.

    Attributes
    ----------
    method
        ``nearest_neighbor``, ``linear`` or ``cubic``.
    coordinates
        How a position of the output is mapped to the input.
    rounding
        How the nearest neighbour is chosen.
    alpha
        Coefficient of the cubic spline (Keys 1981).
    exclude_outside
        Give elements beyond the border no weight, and scale up the others.
    """

    method: str
    coordinates: str
    rounding: str
    alpha: float
    exclude_outside: bool

    def taps(self, q: Expr, size: int, out_size: int, dtype: str) -> list[tuple[Expr, Expr]]:
        """Pairs (position, weight) for one output element; positions inside the input."""
        source = self._source(q.astype(dtype), size, out_size, dtype)
        if self.method == "nearest_neighbor":
            chosen = _rounded(source, self.rounding).astype("int32")
            return [(_clamped(chosen, size), tvm.tirx.const(1, dtype))]
        base = te.floor(source)
        weights = self._weights(source - base, dtype)
        first = base.astype("int32") - (len(weights) // 2 - 1)
        if self.exclude_outside and self.method == "cubic":
            zero = tvm.tirx.const(0, dtype)
            weights = [
                tvm.tirx.Select(tvm.tirx.all(first + k >= 0, first + k < size), weight, zero)
                for k, weight in enumerate(weights)
            ]
            total = sum(weights[1:], start=weights[0])
            weights = [weight / total for weight in weights]
        return [(_clamped(first + k, size), weight) for k, weight in enumerate(weights)]

    def reach(self, size: int, out_size: int) -> int:
        """How many consecutive outputs cover all that may read one input."""
        return min(ceil(5 / self._scale(size, out_size)) + 5, out_size)

    def first_reader(self, i: Expr, size: int, out_size: int, dtype: str) -> Expr:
        """The first of those outputs."""
        start = (i.astype(dtype) - 2.5) / self._scale(size, out_size)
        return te.max(te.floor(start).astype("int32") - 1, 0)

    def _scale(self, size: int, out_size: int) -> float:
        if self.coordinates == "align_corners":
            return max(size - 1, 1e-6) / max(out_size - 1, 1)
        return size / out_size

    def _source(self, q: Expr, size: int, out_size: int, dtype: str) -> Expr:
        """Where in the input an output element lies."""
        if self.coordinates == "align_corners":
            return q * tvm.tirx.const((size - 1) / max(out_size - 1, 1), dtype)
        scale = tvm.tirx.const(size / out_size, dtype)
        if self.coordinates == "asymmetric":
            return q * scale
        if self.coordinates == "tf_half_pixel_for_nn":
            return (q + 0.5) * scale
        if self.coordinates == "pytorch_half_pixel" and out_size == 1:
            return q * tvm.tirx.const(0, dtype)
        return (q + 0.5) * scale - 0.5

    def _weights(self, t: Expr, dtype: str) -> list[Expr]:
        """Weights of the neighbours when the source lies `t` behind the one before it."""
        one = tvm.tirx.const(1, dtype)
        if self.method == "linear":
            return [one - t, t]
        return [self._outer(t + 1), self._inner(t), self._inner(one - t), self._outer(one - t + 1)]

    def _inner(self, x: Expr) -> Expr:
        """The cubic spline at a distance up to one."""
        return (x * (self.alpha + 2) - (self.alpha + 3)) * x * x + 1

    def _outer(self, x: Expr) -> Expr:
        """The cubic spline at a distance between one and two."""
        return ((x * self.alpha - 5 * self.alpha) * x + 8 * self.alpha) * x - 4 * self.alpha


def resize(
    data: te.Tensor,
    *,
    size: tuple[int, ...],
    method: str,
    coordinates: str,
    rounding: str,
    alpha: float,
    exclude_outside: bool,
) -> te.Tensor:
    """The space axes of (batch, channel, space...) resized to `size`."""
    how = Interpolation(method, coordinates, rounding, alpha, exclude_outside)
    batch, channels, *space = [int(extent) for extent in data.shape]
    dtype = _coordinate_dtype(data)

    def element(n: Var, c: Var, *q: Var) -> Expr:
        taps = [how.taps(q[a], space[a], size[a], dtype) for a in range(len(space))]
        value = tvm.tirx.const(0, dtype)
        for chosen in product(*taps):
            read = data(n, c, *(position for position, _ in chosen)).astype(dtype)
            for _, weight in chosen:
                read = read * weight
            value = value + read
        return value.astype(data.dtype)

    return te.compute((batch, channels, *size), element, name="resized")


def resize_backward(
    output_gradient: te.Tensor,
    *,
    shape: tuple[int, ...],
    method: str,
    coordinates: str,
    rounding: str,
    alpha: float,
    exclude_outside: bool,
) -> te.Tensor:
    """dx[i] = sum_q w(q, i) dy[q], where q runs over the few outputs near i only."""
    how = Interpolation(method, coordinates, rounding, alpha, exclude_outside)
    _, _, *space = shape
    _, _, *out_space = [int(extent) for extent in output_gradient.shape]
    k = [
        te.reduce_axis((0, how.reach(extent, out_extent)), name=f"k{a}")
        for a, (extent, out_extent) in enumerate(zip(space, out_space, strict=True))
    ]
    dtype = _coordinate_dtype(output_gradient)
    zero = tvm.tirx.const(0, dtype)

    def term(n: Var, c: Var, *i: Var) -> Expr:
        at, inside, weight = [], [], None
        for a in range(len(space)):
            q = how.first_reader(i[a], space[a], out_space[a], dtype) + k[a]
            inside += [q >= 0, q < out_space[a]]
            share = _share(how.taps(q, space[a], out_space[a], dtype), i[a], zero)
            weight = share if weight is None else weight * share
            at.append(q)
        read = output_gradient(n, c, *at).astype(dtype) * weight
        return tvm.tirx.if_then_else(tvm.tirx.all(*inside), read, zero)

    gathered = te.compute(shape, lambda *i: te.sum(term(*i), axis=k), name="data_gradient")
    if str(gathered.dtype) == str(output_gradient.dtype):
        return gathered
    return te.compute(
        shape, lambda *i: gathered(*i).astype(output_gradient.dtype), name="data_gradient_cast"
    )


def _share(taps: Sequence[tuple[Expr, Expr]], i: Var, zero: Expr) -> Expr:
    """The weight with which an output reads the input `i`, perhaps through several taps."""
    total = zero
    for position, weight in taps:
        total = total + tvm.tirx.Select(position == i, weight, zero)
    return total


def _rounded(source: Expr, rounding: str) -> Expr:
    # TVM's own resize leaves this much room, so that 1.9999999 is 2.
    slack = 1e-5
    match rounding:
        case "floor":
            return te.floor(source + slack)
        case "ceil":
            return te.ceil(source - slack)
        case "round_prefer_ceil":
            return te.floor(source + 0.5)
        case "round_prefer_floor":
            return te.ceil(source - 0.5)
        case _:
            return te.round(source)


def _clamped(position: Expr, size: int) -> Expr:
    return te.max(te.min(position, size - 1), 0)


def _coordinate_dtype(tensor: te.Tensor) -> str:
    return "float64" if str(tensor.dtype) == "float64" else "float32"
