"""Loops whose turns depend on one another compute what the same loops in numpy do."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray
from scipy import special
from tvm import te, tirx
from tvm.script import tirx as T

from tvm_xengine.aot.check.definitions.expressions import Expressions
from tvm_xengine.aot.check.definitions.kernels import definition_of
from tvm_xengine.kernels.te.loops import hurwitz_zeta


@T.prim_func(private=True, s_tir=True)
def recurrence(x: T.Buffer((3, 6), "float32"), y: T.Buffer((3, 6), "float32")):
    """Each number follows from those before it: by a root, a choice, a least place, a cast."""
    for b in T.serial(3):
        with T.sblock("row"):
            v = T.axis.spatial(3, b)
            T.reads(x[v, 0:6])
            T.writes(y[v, 0:6])
            least = T.sblock_alloc_buffer((1,), "int32")
            least[0] = 0
            for i in range(6):
                if x[v, i] < x[v, least[0]]:
                    least[0] = i
                y[v, i] = T.sqrt(T.abs(x[v, i])) / T.cast(T.max(i, 2) // 2, "float32")
                if i > 0 and y[v, i - 1] > T.float32(0.5):
                    y[v, i] = y[v, i] + y[v, i - 1] * x[v, least[0]]
                else:
                    y[v, i] = T.Select(x[v, i] > T.float32(0), -y[v, i], T.float32(0.1))


@T.prim_func(private=True, s_tir=True)
def from_the_end(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    """Reads before the first element, where numpy would take the last."""
    for b in T.serial(1):
        with T.sblock("all"):
            v = T.axis.spatial(1, b)
            T.reads(x[0:4])
            T.writes(y[0:4])
            for i in range(4):
                y[i] = x[i - 1 + v]


@T.prim_func(private=True, s_tir=True)
def quotients(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for b in T.serial(1):
        with T.sblock("all"):
            v = T.axis.spatial(1, b)
            T.reads(x[0:4])
            T.writes(y[0:4])
            for i in range(4):
                y[i + v] = T.max(T.float32(1) / x[i], T.sqrt(x[i]))


@T.prim_func(private=True, s_tir=True)
def halved(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    """A running sum of halves, less a number that is bound and may be negative."""
    for b in T.serial(4):
        with T.sblock("one"):
            v = T.axis.spatial(4, b)
            T.reads(x[0:4])
            T.writes(y[v])
            work = T.sblock_alloc_buffer((1,), "float32")
            work[0] = x[v]
            before: T.let[T.int32] = v - 1
            for _i in range(3):
                work[0] = work[0] / T.float32(2) + T.cast(before, "float32")
            y[v] = work[0] - x[T.max(before, 0)]


def evaluated(func: tirx.PrimFunc, x: NDArray[np.float32], wide: DTypeLike) -> NDArray[np.generic]:
    (made,) = definition_of(func, 1, Expressions(wide))([x.astype(wide)])
    return made


@T.prim_func(private=True, s_tir=True)
def halvings(x: T.Buffer((5,), "float32"), y: T.Buffer((5,), "float32")):
    """How often a number above 0 is halved to at most 1, in a loop that ends by its value."""
    for b in T.serial(5):
        with T.sblock("one"):
            v = T.axis.spatial(5, b)
            T.reads(x[v])
            T.writes(y[v])
            left = T.sblock_alloc_buffer((1,), "float32")
            left[0] = x[v]
            y[v] = T.float32(0)
            if x[v] > T.float32(0):
                while left[0] > T.float32(1):
                    left[0] = left[0] / T.float32(2)
                    y[v] = y[v] + T.float32(1)


def by_numpy(x: NDArray[np.float64], number: Callable[[float], np.floating]) -> NDArray[np.generic]:
    y = np.zeros_like(x)
    for row, out in zip(x, y, strict=True):
        for i, value in enumerate(row):
            least = row[: i + 1].min()
            out[i] = np.sqrt(abs(value)) / number(max(i, 2) // 2)
            if i > 0 and out[i - 1] > 0.5:
                out[i] = out[i] + out[i - 1] * least
            else:
                out[i] = -out[i] if value > 0 else np.float32(0.1)
    return y


@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_a_recurrence_is_that_of_numpy_in_the_same_width(wide: type[np.floating]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    found = evaluated(recurrence, x, wide)
    assert found.dtype == wide
    np.testing.assert_array_equal(found, by_numpy(x.astype(wide), wide))


def test_a_number_that_is_bound_outside_of_the_loops_may_be_negative() -> None:
    x = np.array([5, 0.5, -3, 64], np.float32)
    found = evaluated(halved, x, np.float64)
    before = np.arange(4) - 1
    np.testing.assert_array_equal(found, x / 8 + 1.75 * before - x[np.maximum(before, 0)])


def test_what_is_before_the_first_element_is_an_error() -> None:
    with pytest.raises(IndexError, match="no element -1"):
        evaluated(from_the_end, np.ones(4, np.float32), np.float64)


def test_quotients_and_roots_are_those_of_ieee_754() -> None:
    x = np.array([0, -4, np.inf, np.nan], np.float32)
    found = evaluated(quotients, x, np.float64)
    np.testing.assert_array_equal(found, [np.inf, np.nan, np.inf, np.nan])


def test_each_element_has_its_own_number_of_turns() -> None:
    x = np.array([5, 0.5, -3, 64, np.nan], np.float32)
    np.testing.assert_array_equal(evaluated(halvings, x, np.float64), [3, 0, 0, 6, 0])


def test_functions_without_a_formula_are_those_of_scipy() -> None:
    """Loops that end by their values, as they are lowered; soon, however far below 0 they begin."""
    order, at = np.array([2, 3, 2, 1.5, 4, 5]), np.array([0.3, 40, -2.5, 7, np.nan, -20.75])
    np.testing.assert_allclose(_zeta(order, at), special.zeta(order, at), rtol=1e-12)
    far = _zeta(np.array([2.0, 3.0]), np.array([-1e12 - 0.25, -1e12 - 0.25]))
    np.testing.assert_allclose(far, [2 * np.pi**2, -2 * np.pi**3], rtol=1e-9)
    assert _zeta(np.array([3.0]), np.array([-2.0])) == np.inf


def _zeta(*given: NDArray[np.float64]) -> NDArray[np.generic]:
    s, q = (te.placeholder(one.shape, "float64") for one in given)
    (made,) = definition_of(hurwitz_zeta(s, q), 2, Expressions(np.float64))(given)
    return made
