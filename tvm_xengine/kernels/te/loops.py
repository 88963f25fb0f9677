"""Functions of elements that no formula of fixed length computes: loops that end by their values."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial

import tvm
from tvm import te
from tvm.script import tirx as T
from tvm.tirx import Expr

from tvm_xengine.kernels.te import script
from tvm_xengine.kernels.te.pointwise.function import both, const, either, isnan, select, zero
from tvm_xengine.kernels.te.pointwise.special import BERNOULLI


def gcd(a: te.Tensor, b: te.Tensor) -> tvm.tirx.PrimFunc:
    """The greatest common divisor of whole numbers, by Euclid."""
    count, dtype = int(a.shape[0]), a.dtype

    @script.prim_func(private=True, s_tir=True)
    def func(
        a: T.Buffer((count,), dtype), b: T.Buffer((count,), dtype), y: T.Buffer((count,), dtype)
    ):
        T.func_attr({"tirx.noalias": True})
        for i in T.serial(count):
            with T.sblock("gcd"):
                v = T.axis.spatial(count, i)
                T.reads(a[v], b[v])
                T.writes(y[v])
                pair = T.sblock_alloc_buffer((3,), dtype)
                pair[0] = T.Select(a[v] < T.cast(0, dtype), T.cast(0, dtype) - a[v], a[v])
                pair[1] = T.Select(b[v] < T.cast(0, dtype), T.cast(0, dtype) - b[v], b[v])
                while pair[0] != T.cast(0, dtype):
                    pair[2] = pair[0]
                    pair[0] = T.truncmod(pair[1], pair[0])
                    pair[1] = pair[2]
                y[v] = pair[1]

    return func


@dataclass(frozen=True)
class Family:
    """Orthogonal polynomials by their recurrence from 1 and the one of degree 1.

    Attributes
    ----------
    first
        The polynomial of degree 1 at x.
    step
        From x, k, and the polynomials of degrees k - 1 and k, the one of degree k + 1.
    inside
        From the degree and acos(x), the polynomial within (-1, 1): in place of a long loop.
    ends
        From the degree, the values at 1 and, without the sign (-1)^n, at -1.
    has_limit
        Whether PyTorch gives NaN beyond the degrees of `_HERMITE_LIMIT`.
    """

    first: Callable[[Expr], Expr]
    step: Callable[[Expr, Expr, Expr, Expr], Expr]
    inside: Callable[[Expr, Expr], Expr] | None = None
    ends: Callable[[Expr], tuple[Expr, Expr]] | None = None
    has_limit: bool = False

    def needs_no_loop(self, at: Expr, n: Expr) -> Expr:
        """Whether the value at a place of degree n is known without the recurrence."""
        closed = n < T.int64(1)
        if self.has_limit:
            closed = either(closed, n > T.int64(_HERMITE_LIMIT[str(at.ty.dtype)]))
        if self.ends is not None:
            closed = either(closed, te.abs(at) == const(1, at))
        if self.inside is not None:
            closed = either(closed, _is_inside(at, n))
        return closed

    def without_loop(self, at: Expr, n: Expr) -> Expr:
        """That value."""
        value, degree = zero(at), n.astype(str(at.ty.dtype))
        if self.inside is not None:
            angle = te.acos(select(te.abs(at) < const(1, at), at, zero(at)))
            value = self.inside(degree, angle)
        if self.ends is not None:
            high, low = self.ends(degree)
            is_odd = tvm.tirx.truncmod(n, T.int64(2)) == T.int64(1)
            value = select(at == const(1, at), high, value)
            value = select(at == const(-1, at), select(is_odd, -low, low), value)
        if self.has_limit:
            is_beyond = n > T.int64(_HERMITE_LIMIT[str(at.ty.dtype)])
            value = select(is_beyond, const(float("nan"), at), value)
        value = select(n == T.int64(0), const(1, at), value)
        return select(n < T.int64(0), zero(at), value)


_HERMITE_LIMIT = {"float32": 128, "float64": 512}
"""Degrees from which PyTorch takes Hermite's polynomials for overflown."""

_LONG = 8
"""Degrees up to this one are computed by the recurrence, which is as fast and more exact."""


def _doubled(x: Expr, _k: Expr, p: Expr, q: Expr) -> Expr:
    return 2.0 * x * q - p


FAMILIES: dict[str, Family] = {
    "chebyshev_t": Family(
        lambda x: x, _doubled, lambda n, t: te.cos(n * t), lambda n: (const(1, n), const(1, n))
    ),
    "chebyshev_u": Family(
        lambda x: 2.0 * x,
        _doubled,
        lambda n, t: te.sin((n + 1.0) * t) / te.sin(t),
        lambda n: (n + 1.0, n + 1.0),
    ),
    "chebyshev_v": Family(
        lambda x: 2.0 * x - 1.0,
        _doubled,
        lambda n, t: te.cos((n + 0.5) * t) / te.cos(0.5 * t),
        lambda n: (const(1, n), 2.0 * n + 1.0),
    ),
    "chebyshev_w": Family(
        lambda x: 2.0 * x + 1.0,
        _doubled,
        lambda n, t: te.sin((n + 0.5) * t) / te.sin(0.5 * t),
        lambda n: (2.0 * n + 1.0, const(1, n)),
    ),
    "hermite_h": Family(
        lambda x: 2.0 * x, lambda x, k, p, q: 2.0 * x * q - 2.0 * k * p, has_limit=True
    ),
    "hermite_he": Family(lambda x: x, lambda x, k, p, q: x * q - k * p, has_limit=True),
    "laguerre_l": Family(
        lambda x: 1.0 - x, lambda x, k, p, q: ((2.0 * k + (1.0 - x)) * q - k * p) / (k + 1.0)
    ),
    "legendre_p": Family(
        lambda x: x,
        lambda x, k, p, q: ((2.0 * k + 1.0) * x * q - k * p) / (k + 1.0),
        ends=lambda n: (const(1, n), const(1, n)),
    ),
}
"""Abramowitz and Stegun, table 22.7 (recurrences) and 22.3.15 to 22.3.18 (angles)."""


def polynomial(x: te.Tensor, degree: te.Tensor, *, family: str) -> tvm.tirx.PrimFunc:
    """An orthogonal polynomial at x; 0 of a degree below 0."""
    count, dtype = int(x.shape[0]), str(x.dtype)
    one = FAMILIES[family]

    def is_wanted(k: Expr, n: Expr, q: Expr) -> Expr:
        return tvm.tirx.all(k < n, tvm.tirx.Not(isnan(q)))

    @script.prim_func(private=True, s_tir=True)
    def func(
        x: T.Buffer((count,), dtype),
        degree: T.Buffer((count,), "int64"),
        y: T.Buffer((count,), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for i in T.serial(count):
            with T.sblock("polynomial"):
                v = T.axis.spatial(count, i)
                T.reads(x[v], degree[v])
                T.writes(y[v])
                last = T.sblock_alloc_buffer((3,), dtype)
                k = T.sblock_alloc_buffer((1,), "int64")
                if one.needs_no_loop(x[v], degree[v]):
                    y[v] = one.without_loop(x[v], degree[v])
                else:
                    last[0] = T.cast(1, dtype)
                    last[1] = one.first(x[v])
                    k[0] = T.int64(1)
                    while is_wanted(k[0], degree[v], last[1]):
                        last[2] = one.step(x[v], T.cast(k[0], dtype), last[0], last[1])
                        last[0] = last[1]
                        last[1] = last[2]
                        k[0] = k[0] + T.int64(1)
                    y[v] = last[1]

    return func


def _is_inside(x: Expr, n: Expr) -> Expr:
    return tvm.tirx.all(te.abs(x) < const(1, x), n > T.int64(_LONG))


_SERIES_FROM = 20.0
"""Behind this plus s the terms of Euler and Maclaurin that are left out are below 1e-16."""


def hurwitz_zeta(s: te.Tensor, q: te.Tensor) -> tvm.tirx.PrimFunc:
    """The sum of 1 / (q + k)^s, by Euler and Maclaurin behind the first terms; NaN for s below 1.

    What lies below 0 is the difference of two such sums, so that no loop is longer where q is far below.
    """
    count, dtype = int(s.shape[0]), s.dtype

    def edge(s: Expr, q: Expr) -> Expr:
        """The value where there is no series, else 0."""
        infinity, missing = const(float("inf"), s), const(float("nan"), s)
        value = select(either(isnan(s), isnan(q)), missing, zero(s))
        is_pole = q == te.floor(q)
        beside = select(is_pole, infinity, select(s != te.floor(s), missing, value))
        value = select(q <= zero(q), beside, value)
        # With PyTorch's sum 0 / 0 ends the series of an infinite power of what is above 1.
        near = select(te.abs(q) < const(1, q), infinity, select(q == const(1, q), q, missing))
        value = select(both(s == infinity, value == zero(s)), near, value)
        return select(s == const(1, s), infinity, select(s < const(1, s), missing, value))

    def tail(s: Expr, z: Expr) -> Expr:
        power = te.power(z, -s)
        value = power * z / (s - 1.0) + 0.5 * power
        term = s * (power / z)
        for k, number in enumerate(BERNOULLI, 1):
            value = value + term * (number / factorial(2 * k))
            term = term * ((s + (2.0 * k - 1.0)) / z) * ((s + 2.0 * k) / z)
        return value

    def first(part: Expr, q: Expr) -> Expr:
        """Where a part of the sum begins: all of it, or what is above 0, below 0, and not below `q`."""
        fraction = -q - te.floor(-q)
        after = select(part == 1, fraction, 1.0 - q)
        return select(q > zero(q), q, select(part == 0, 1.0 - fraction, after))

    def weight(part: Expr, s: Expr) -> Expr:
        """The sign of what the part adds: powers of what is below 0 have that of (-1)^s."""
        sign = const(1, s) - 2.0 * (s - 2.0 * te.floor(s * 0.5))
        return select(part == 0, const(1, s), select(part == 1, sign, -sign))

    @script.prim_func(private=True, s_tir=True)
    def func(
        s: T.Buffer((count,), dtype), q: T.Buffer((count,), dtype), y: T.Buffer((count,), dtype)
    ):
        T.func_attr({"tirx.noalias": True})
        for i in T.serial(count):
            with T.sblock("zeta"):
                v = T.axis.spatial(count, i)
                T.reads(s[v], q[v])
                T.writes(y[v])
                at = T.sblock_alloc_buffer((2,), dtype)
                y[v] = edge(s[v], q[v])
                if y[v] == T.cast(0, dtype):
                    for part in T.serial(3):
                        if part == 0 or q[v] < T.cast(0, dtype):
                            at[0] = first(part, q[v])
                            at[1] = T.cast(0, dtype)
                            while at[0] < T.min(s[v], T.cast(1000, dtype)) + T.cast(
                                _SERIES_FROM, dtype
                            ):
                                at[1] = at[1] + T.pow(at[0], T.cast(0, dtype) - s[v])
                                at[0] = at[0] + T.cast(1, dtype)
                            y[v] = y[v] + weight(part, s[v]) * (at[1] + tail(s[v], at[0]))

    return func
