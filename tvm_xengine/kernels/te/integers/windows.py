"""Elements of windows of int8 images, and pools over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.integers.rounding import Rounding


@dataclass(frozen=True)
class Window:
    """A window that moves over an image.

    Attributes
    ----------
    padding
        Before each axis, then behind each.
    outside
        The value of every pixel outside the image.
    """

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    outside: int

    def axes(self) -> list[te.IterVar]:
        """Axes to reduce over."""
        return [te.reduce_axis((0, extent), name=f"k{a}") for a, extent in enumerate(self.extents)]

    def read(
        self, data: te.Tensor, leading: Sequence[Expr], q: Sequence[Expr], k: Sequence[Expr]
    ) -> Expr:
        """The element at place `k` of the window at `q`."""
        space = [int(extent) for extent in data.shape[2:]]
        at = [
            one * stride + place * step - before
            for one, place, stride, step, before in zip(
                q, k, self.strides, self.dilation, self.padding, strict=False
            )
        ]
        rank = len(space)
        conditions = []
        for a, extent in enumerate(space):
            if self.padding[a]:
                conditions.append(at[a] >= 0)
            if self.padding[a + rank]:
                conditions.append(at[a] < extent)
        if not conditions:
            return data(*leading, *at)
        outside = tvm.tirx.const(self.outside, data.dtype)
        return tvm.tirx.if_then_else(tvm.tirx.all(*conditions), data(*leading, *at), outside)


def integer_max_pool(
    data: te.Tensor, *, window: Window, output_shape: tuple[int, ...]
) -> te.Tensor:
    """The maximum of each window; scale and zero point stay."""
    k = window.axes()

    def element(n: Var, c: Var, *q: Var) -> Expr:
        return te.max(window.read(data, (n, c), q, k), axis=k)

    return te.compute(output_shape, element, name="maximum")


def integer_mean_pool(
    data: te.Tensor,
    *,
    window: Window,
    factor: float,
    rounding: Rounding,
    output_shape: tuple[int, ...],
) -> te.Tensor:
    """The mean of each window; outside the image is the zero point of the data."""
    k, count = window.axes(), prod(window.extents)

    def term(n: Var, c: Var, *q: Var) -> Expr:
        return te.sum(window.read(data, (n, c), q, k).astype("int32"), axis=k)

    total = te.compute(output_shape, term, name="total")
    constant = tvm.tirx.const(count * window.outside, "int32")
    scale = tvm.tirx.const(factor / count, "float32")

    def element(*i: Var) -> Expr:
        return rounding.of((total(*i) - constant).astype("float32") * scale)

    return te.compute(output_shape, element, name="mean")
