"""Elements of windows of int8 images, and pools over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.integers.rounding import requantized


@dataclass(frozen=True)
class Window:
    """A window that moves over an image.

    Attributes
    ----------
    padding
        Before each axis, then behind each.
    """

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def axes(self) -> list[te.IterVar]:
        """Axes to reduce over."""
        return [te.reduce_axis((0, extent), name=f"k{a}") for a, extent in enumerate(self.extents)]

    def read(
        self,
        data: te.Tensor,
        leading: Sequence[Expr],
        q: Sequence[Expr],
        k: Sequence[Expr],
        value: int,
    ) -> Expr:
        """The element at place `k` of the window at `q`, or `value` outside the image."""
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
        outside = tvm.tirx.const(value, data.dtype)
        return tvm.tirx.if_then_else(tvm.tirx.all(*conditions), data(*leading, *at), outside)


def integer_max_pool(
    data: te.Tensor,
    *,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    output_shape: tuple[int, ...],
) -> te.Tensor:
    """The maximum of each window; scale and zero point stay."""
    moved = Window(window, strides, padding, dilation)
    k = moved.axes()

    def element(n: Var, c: Var, *q: Var) -> Expr:
        return te.max(moved.read(data, (n, c), q, k, -128), axis=k)

    return te.compute(output_shape, element, name="maximum")


def integer_mean_pool(
    data: te.Tensor,
    *,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    data_zero: int,
    factor: float,
    zero: int,
    output_shape: tuple[int, ...],
) -> te.Tensor:
    """The mean of each window, whose padding counts as zeros."""
    moved = Window(window, strides, padding, (1,) * len(window))
    k = moved.axes()

    def term(n: Var, c: Var, *q: Var) -> Expr:
        return te.sum(moved.read(data, (n, c), q, k, data_zero).astype("int32"), axis=k)

    total = te.compute(output_shape, term, name="total")
    constant = tvm.tirx.const(prod(window) * data_zero, "int32")
    scale = tvm.tirx.const(factor / prod(window), "float32")

    def element(*i: Var) -> Expr:
        return requantized((total(*i) - constant).astype("float32") * scale, zero, -128, 127)

    return te.compute(output_shape, element, name="mean")
