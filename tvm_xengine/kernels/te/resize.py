"""Image resizing: nearest neighbour, linear and cubic interpolation along every space axis.

An output element q of an axis reads a few input elements p with weights w(q, p). Positions beyond
the border mean the element at the border.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.tirx import Expr

from tvm_xengine.kernels.te.axis_maps import AxisMap, map_axes, widened


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

    def along(self, size: int, out_size: int) -> AxisMap:
        """The map of an axis from `size` to `out_size` elements."""
        before, behind = self._reach
        if self.method == "nearest_neighbor":
            low = high = self._nearest(np.arange(out_size), size, out_size)
        else:
            source, margin = self._numbers(size, out_size)
            low, high = (np.floor(source + shift * margin).astype(np.int64) for shift in (-1, 1))

        def share(q: Expr, p: Expr, dtype: str) -> Expr:
            zero = tvm.tirx.const(0, dtype)
            total = zero
            for position, weight in self._taps(q, size, out_size, dtype):
                total = total + tvm.tirx.Select(position == p, weight, zero)
            return total

        return AxisMap(
            size,
            first=np.clip(low - before, 0, size - 1),
            last=np.clip(high + behind, 0, size - 1),
            share=share,
            only_selects=self.method == "nearest_neighbor",
        )

    @property
    def _reach(self) -> tuple[int, int]:
        """How many inputs before and behind the base an output reads."""
        return {"nearest_neighbor": (0, 0), "linear": (0, 1)}.get(self.method, (1, 2))

    def _taps(self, q: Expr, size: int, out_size: int, dtype: str) -> list[tuple[Expr, Expr]]:
        """Pairs (position, weight) for one output element; positions inside the input."""
        if self.method == "nearest_neighbor":
            # `_nearest` doubles the numerator, below 2 * size * out_size, and adds the denominator.
            wide = widened(q, 6 * size * out_size)
            position = self._nearest(wide, size, out_size).astype("int32")
            return [(_clamped(position, size), tvm.tirx.const(1, dtype))]
        source = self._source(q.astype(dtype), size, out_size)
        base = te.floor(source)
        weights = self._weights(source - base, dtype)
        first = base.astype("int32") - self._reach[0]
        if self.exclude_outside and self.method == "cubic":
            zero = tvm.tirx.const(0, dtype)
            weights = [
                tvm.tirx.Select(tvm.tirx.all(first + k >= 0, first + k < size), weight, zero)
                for k, weight in enumerate(weights)
            ]
            total = sum(weights[1:], start=weights[0])
            weights = [weight / total for weight in weights]
        return [(_clamped(first + k, size), weight) for k, weight in enumerate(weights)]

    def _numbers(self, size: int, out_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the outputs lie in the input, and how far off that is where it is computed in float32."""
        source = self._source(np.arange(out_size, dtype=np.float64), size, out_size)
        steps, intervals = (
            (size - 1, max(out_size - 1, 1))
            if self.coordinates == "align_corners"
            else (size, out_size)
        )
        denominator = Fraction(steps, intervals).denominator
        is_exact = denominator & (denominator - 1) == 0 and denominator * size < 2**20
        return source, (np.abs(source) + 1) * (0.0 if is_exact else 2.0**-22)

    def _nearest(self, q: Any, size: int, out_size: int) -> Any:
        """The input that output `q` takes, before clamping, in exact integer arithmetic.

        In floating point, two kernels may round a position halfway between two inputs differently.
        """
        if self.coordinates == "align_corners":
            position, unit = q * (size - 1), max(out_size - 1, 1)
        elif self.coordinates == "asymmetric":
            position, unit = q * size, out_size
        elif self.coordinates == "tf_half_pixel_for_nn":
            position, unit = (q * 2 + 1) * size, 2 * out_size
        elif self.coordinates == "pytorch_half_pixel" and out_size == 1:
            position, unit = q * 0, 1
        else:
            position, unit = (q * 2 + 1) * size - out_size, 2 * out_size
        match self.rounding:
            case "floor":
                return position // unit
            case "ceil":
                return -(-position // unit)
            case "round_prefer_floor":
                return -((unit - position * 2) // (2 * unit))
            case _:  # a half goes up
                return (position * 2 + unit) // (2 * unit)

    def _source(self, q: Any, size: int, out_size: int) -> Any:
        """Where in the input an output element lies."""
        if self.coordinates == "align_corners":
            return q * ((size - 1) / max(out_size - 1, 1))
        scale = size / out_size
        if self.coordinates == "asymmetric":
            return q * scale
        if self.coordinates == "tf_half_pixel_for_nn":
            return (q + 0.5) * scale
        if self.coordinates == "pytorch_half_pixel" and out_size == 1:
            return q * 0.0
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
    maps = [how.along(*sizes) for sizes in zip(map(int, data.shape[2:]), size, strict=True)]
    return map_axes(data, maps, _coordinate_dtype(data))


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
    """dx[p] = sum_q share(p, q) dy[q], the transpose of `resize`."""
    how = Interpolation(method, coordinates, rounding, alpha, exclude_outside)
    sizes = zip(shape[2:], map(int, output_gradient.shape[2:]), strict=True)
    maps = [how.along(*one).transposed() for one in sizes]
    return map_axes(output_gradient, maps, _coordinate_dtype(output_gradient))


def _clamped(position: Expr, size: int) -> Expr:
    return te.max(te.min(position, size - 1), 0)


def _coordinate_dtype(tensor: te.Tensor) -> str:
    return "float64" if str(tensor.dtype) == "float64" else "float32"
