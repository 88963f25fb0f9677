"""Linear maps along each space axis of an image: interpolation, means of windows, and their transposes.

An output element q of an axis is a weighted sum of the few inputs p of a band. The map of an image
is the product of those of its axes, so it is applied axis by axis. Its transpose has the same form
with q and p exchanged, and is the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.relax_ir.kernel_attributes import KEPT_ATTR

Share = Callable[[Expr, Expr, str], Expr]
"""The weight of input p in output q, from q, p and the type of the weight."""

_MOST_INT32 = 2**31 - 1
"""Loop variables are int32."""


def widened(q: Expr, most: int) -> Expr:
    """A loop variable in a type that holds integers up to `most`."""
    return q.astype("int64") if most > _MOST_INT32 else q


@dataclass(frozen=True)
class AxisMap:
    """A linear map along one axis.

    Attributes
    ----------
    size
        Number of inputs.
    first, last
        For each output the first and the last input that it may read (int64). Neither falls. The
        last one lies before the first where an output reads nothing.
    share
        The weight of an input in an output; zero of those that it does not read.
    only_selects
        Whether every weight is one or zero.
    divides
        Whether `share` gives what an input is divided by instead, as a mean divides: whole numbers
        have no rounding.
    """

    size: int
    first: np.ndarray
    last: np.ndarray
    share: Share
    only_selects: bool = False
    divides: bool = False

    @property
    def out_size(self) -> int:
        """Number of outputs."""
        return len(self.first)

    @property
    def is_identity(self) -> bool:
        """Whether every output is the input at its place."""
        place = np.arange(self.size)
        return self.only_selects and all(np.array_equal(b, place) for b in (self.first, self.last))

    def transposed(self) -> AxisMap:
        """The map from gradients of outputs to those of inputs."""
        p = np.arange(self.size)
        readers_before = np.searchsorted(self.last, p)
        readers_until = np.searchsorted(self.first, p, side="right")
        return AxisMap(
            size=self.out_size,
            first=np.minimum(readers_before, readers_until),
            last=readers_until - 1,
            share=lambda q, p, dtype: self.share(p, q, dtype),
            only_selects=self.only_selects,
            divides=self.divides,
        )


@dataclass(frozen=True)
class _Band:
    """Where the reads of output q begin: ``(q * step + offset) // divisor``."""

    step: int
    offset: int
    divisor: int

    def __call__(self, q: Expr, count: int) -> Expr:
        """The beginning for output `q` of `count`."""
        wide = widened(q, count * self.step + abs(self.offset))
        return tvm.tirx.floordiv(wide * self.step + self.offset, self.divisor).astype("int32")

    def starts(self, count: int) -> np.ndarray:
        """The beginnings for all outputs."""
        return (np.arange(count) * self.step + self.offset) // self.divisor

    @classmethod
    def below(cls, first: np.ndarray, size: int) -> _Band:
        """The band that begins nowhere behind `first`, and nearest to it."""
        q = np.arange(len(first))
        found = []
        # Positions of pixels' centres and of corners; halves of a pixel count.
        for step, divisor in (
            (2 * size, 2 * len(first)),
            (2 * (size - 1), max(2 * (len(first) - 1), 1)),
        ):
            offset = int(np.min((first + 1) * divisor - 1 - q * step))
            common = gcd(step, divisor)
            band = cls(step // common, offset // common, divisor // common)
            found.append((int(np.sum(first - band.starts(len(first)))), band))
        return min(found, key=lambda one: one[0])[1]


def map_axes(data: te.Tensor, maps: Sequence[AxisMap], dtype: str) -> te.Tensor:
    """The space axes of (batch, channel, space...) mapped in turn, computed in `dtype`.

    Axes that shrink come first, the outermost of them before the others, whose rows it keeps
    whole; axes that grow come last, the innermost of them first, where there are the fewest rows.
    """
    order = sorted(
        range(len(maps)),
        key=lambda a: (
            maps[a].out_size > maps[a].size,
            -a if maps[a].out_size > maps[a].size else a,
        ),
    )
    mapped = data
    for a in order:
        if not maps[a].is_identity:
            mapped = _mapped(mapped, a + 2, maps[a], dtype)
    if mapped is not data and str(mapped.dtype) == str(data.dtype):
        return mapped
    return te.compute(mapped.shape, lambda *i: mapped(*i).astype(data.dtype), name="mapped_whole")


def _mapped(data: te.Tensor, axis: int, along: AxisMap, dtype: str) -> te.Tensor:
    band = _Band.below(along.first, along.size)
    starts = band.starts(along.out_size)
    taps = int(np.max(along.last - starts)) + 1
    is_inside = starts[0] >= 0 and int(np.max(starts)) + taps <= along.size
    reads_all = is_inside and bool(
        np.all(along.first == starts) and np.all(along.last - starts + 1 == taps)
    )
    shape = [*data.shape[:axis], along.out_size, *data.shape[axis + 1 :]]

    def read(i: Sequence[Var], tap: Expr | int) -> Expr:
        p = band(i[axis], along.out_size) + tap
        inside = p if is_inside else te.max(te.min(p, along.size - 1), 0)
        return data(*i[:axis], inside, *i[axis + 1 :])

    if along.only_selects and reads_all and taps == 1:
        return te.compute(shape, lambda *i: read(i, 0), name="mapped")
    k = te.reduce_axis((0, taps), name="k")
    if along.only_selects and reads_all:
        return te.compute(shape, lambda *i: te.sum(read(i, k).astype(dtype), axis=k), name="mapped")
    zero, one = tvm.tirx.const(0, dtype), tvm.tirx.const(1, dtype)

    def weight_of(k: Var, q: Var) -> Expr:
        p = band(q, along.out_size) + k
        share = along.share(q, p, dtype)
        if is_inside:
            return share
        return tvm.tirx.Select(tvm.tirx.all(p >= 0, p < along.size), share, zero)

    weights = te.compute((taps, along.out_size), weight_of, name="weights", attrs={KEPT_ATTR: 1})

    def term(*i: Var) -> Expr:
        weight, value = weights(k, i[axis]), read(i, k).astype(dtype)
        shared = value / te.max(weight, one) if along.divides else value * weight
        # What is not read may be infinite.
        return te.sum(tvm.tirx.Select(weight == zero, zero, shared), axis=k)

    return te.compute(shape, term, name="mapped")
