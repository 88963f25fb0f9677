"""Parts of a tensor that are normalised together, or that share a scale and a shift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.norms.wanted import only

Element = Callable[..., Expr]
"""An element of a tensor by its index."""

Index = Sequence[Expr]


@dataclass(frozen=True)
class Parts:
    """Disjoint parts of a tensor, such as its rows.

    Attributes
    ----------
    shape
        One position for each part.
    extents
        Of the axes within a part.
    part
        From the index of an element to that of its part.
    element
        From the index of a part and a position in it to the index of an element.
    """

    shape: Sequence[int]
    extents: Sequence[int]
    part: Callable[[Index], Index]
    element: Callable[[Index, Index], Index]

    def total(self, value: Element, name: str) -> te.Tensor:
        """The sum over each part."""
        over = [te.reduce_axis((0, n), name=f"k{a}") for a, n in enumerate(self.extents)]
        return te.compute(
            self.shape, lambda *at: te.sum(value(*self.element(at, over)), axis=over), name=name
        )

    def count(self, dtype: str) -> Expr:
        """How many elements a part has."""
        return tvm.tirx.const(prod(self.extents), dtype)


def rows(data: te.Tensor, weight: te.Tensor) -> tuple[Parts, Parts]:
    """The rows of `data`, as long as `weight` over its trailing axes, and the columns."""
    rank = len(data.shape) - len(weight.shape)
    shape = _shape(data)
    outer, inner = shape[:rank], shape[rank:]
    return (
        Parts(outer, inner, lambda i: i[:rank], lambda row, k: (*row, *k)),
        Parts(inner, outer, lambda i: i[rank:], lambda column, k: (*k, *column)),
    )


def channels(data: te.Tensor) -> Parts:
    """Each channel of all images."""
    batch, count, *space = _shape(data)
    return Parts((count,), (batch, *space), lambda i: i[1:2], lambda c, k: (k[0], *c, *k[1:]))


def groups(data: te.Tensor, count: int) -> Parts:
    """Each group of channels of each image."""
    batch, every, *space = _shape(data)
    size = every // count
    return Parts(
        (batch, count),
        (size, *space),
        lambda i: (i[0], i[1] // size),
        lambda at, k: (at[0], at[1] * size + k[0], *k[1:]),
    )


def statistics(data: te.Tensor, parts: Parts, epsilon: float) -> tuple[te.Tensor, te.Tensor]:
    """Mean and ``1 / sqrt(variance + epsilon)`` of each part; the variance is the biased one."""
    count = parts.count(data.dtype)
    total = parts.total(lambda *i: data(*i), "total")
    mean = te.compute(parts.shape, lambda *at: total(*at) / count, name="mean")

    def square(*i: Expr) -> Expr:
        centred = data(*i) - mean(*parts.part(i))
        return centred * centred

    squares = parts.total(square, "squares")
    return mean, inverse_root(lambda *at: squares(*at) / count + epsilon, squares, "inv_std")


def inverse_root(value: Element, like: te.Tensor, name: str) -> te.Tensor:
    """1 / sqrt(value)."""
    one = tvm.tirx.const(1, like.dtype)
    return te.compute(like.shape, lambda *at: one / te.sqrt(value(*at)), name=name)


def centred(data: te.Tensor, mean: te.Tensor, inv_std: te.Tensor, parts: Parts) -> Element:
    """(x - mean) * inv_std."""

    def value(*i: Expr) -> Expr:
        at = parts.part(i)
        return (data(*i) - mean(*at)) * inv_std(*at)

    return value


def scaled(value: Element, gamma: te.Tensor, beta: te.Tensor, parts: Parts) -> Element:
    """value * gamma + beta."""

    def result(*i: Expr) -> Expr:
        at = parts.part(i)
        return value(*i) * gamma(*at) + beta(*at)

    return result


def normalised(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    parts: tuple[Parts, Parts],
    epsilon: float,
) -> list[te.Tensor]:
    """The output, and mean and ``1 / sqrt(variance + epsilon)`` of each part.

    Parameters
    ----------
    parts
        What is normalised together, and what shares a scale and a shift.
    """
    together, sharing = parts
    mean, inv_std = statistics(data, together, epsilon)
    output = scaled(centred(data, mean, inv_std, together), gamma, beta, sharing)
    return [te.compute(data.shape, output, name="output"), mean, inv_std]


def normalised_backward(
    output_gradient: te.Tensor,
    gamma: te.Tensor,
    value: Element,
    inv_std: te.Tensor,
    parts: tuple[Parts, Parts],
    wanted: tuple[bool, ...],
) -> list[te.Tensor]:
    """Gradients of data, gamma and beta.

    With x' = (x - mean) * inv_std, which is `value`, and a = dy * gamma:
    dx = inv_std * (a - mean(a) - x' * mean(a * x')), the means being over a part.
    """
    together, sharing = parts
    count = together.count(output_gradient.dtype)

    def weighed(*i: Expr) -> Expr:
        return output_gradient(*i) * gamma(*sharing.part(i))

    shift = together.total(weighed, "shift")
    slope = together.total(lambda *i: weighed(*i) * value(*i), "slope")

    def data_gradient(*i: Var) -> Expr:
        at = together.part(i)
        through = weighed(*i) - (shift(*at) + value(*i) * slope(*at)) / count
        return inv_std(*at) * through

    gradients = [
        te.compute(output_gradient.shape, data_gradient, name="data_gradient"),
        sharing.total(lambda *i: output_gradient(*i) * value(*i), "gamma_gradient"),
        sharing.total(lambda *i: output_gradient(*i), "beta_gradient"),
    ]
    return only(wanted, gradients)


def _shape(data: te.Tensor) -> list[int]:
    return [int(extent) for extent in data.shape]
