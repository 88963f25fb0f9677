"""Flat indices that divide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx

from tests.kernels.kernels import NATIVE, run_kernel, run_unscheduled
from tests.shares import share
from tests.strategies import cases
from tvm_xengine.kernels.lower.hidden_indices import hide_indices
from tvm_xengine.kernels.te.pooling import max_pool_backward


@pytest.mark.parametrize("run", [run_kernel, run_unscheduled])
@pytest.mark.parametrize(("size", "padding", "rows"), [(3, 1, 9), (4, 2, 11), (2, 1, 6)])
def test_windows_that_do_not_reach_the_last_rows(run, size, padding, rows):
    # With 9 rows TVM made (outer + 1) // 3 * 3 - 9 of outer // 9 * 9 + (outer % 9 + 1) // 3 * 3.
    windows, columns = (rows + padding) // size, 8
    gradient = te.placeholder((2, 4, windows, columns), "float32", name="gradient")

    def spread(n, c, i, j):
        is_inside = tirx.all(i >= -padding, i < windows * size - padding)
        return tirx.if_then_else(
            is_inside, gradient[n, c, (i + padding) // size, j] / 9.0, tirx.const(0, "float32")
        )

    func = te.create_prim_func([gradient, te.compute((2, 4, rows, columns), spread, name="y")])
    dy = np.random.default_rng(0).uniform(-1, 1, (2, 4, windows, columns)).astype("float32")
    expected = np.zeros((2, 4, rows, columns), "float32")
    for i in range(min(rows, windows * size - padding)):
        expected[:, :, i] = dy[:, :, (i + padding) // size] / np.float32(9.0)
    (y,) = run(func, NATIVE, dy)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("run", [run_kernel, run_unscheduled])
@pytest.mark.parametrize("form", ["nested", "both", "either", "select"])
def test_a_second_condition_that_reads_where_the_first_one_holds(run, form):
    """As in the gradient of a max pooling; of two channels the first one had no gradient."""
    windows, rows, columns, zero = 3, 9, 8, tirx.const(0, "float32")
    gradient = te.placeholder((2, 4, windows, columns), "float32", name="gradient")

    def spread(n, c, i, j):
        is_inside = tirx.all(i >= -1, i < 8)
        read = gradient[n, c, (i + 1) // 3, j]
        match form:
            case "nested":
                return tirx.if_then_else(is_inside, tirx.if_then_else(read > 0, read, zero), zero)
            case "both":
                return tirx.if_then_else(tirx.all(is_inside, read > 0), read, zero)
            case "either":
                return tirx.if_then_else(tirx.any(tirx.Not(is_inside), read <= 0), zero, read)
            case _:
                return tirx.Select(is_inside, tirx.Select(read > 0, read, zero), zero)

    func = te.create_prim_func([gradient, te.compute((2, 4, rows, columns), spread, name="y")])
    dy = np.random.default_rng(0).uniform(-1, 1, (2, 4, windows, columns)).astype("float32")
    expected = np.zeros((2, 4, rows, columns), "float32")
    expected[:, :, :8] = np.maximum(dy, 0)[:, :, (np.arange(8) + 1) // 3]
    (y,) = run(func, NATIVE, dy)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("shape", [(2, 3, 9, 4), (2, 3, 13, 1), (1, 2, 6, 5)])
@pytest.mark.parametrize(("size", "stride"), [(3, 3), (3, 2), (2, 2)])
def test_gradients_of_max_poolings_whose_windows_miss_the_last_rows(shape, size, stride):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, shape).astype("float32"))
    x.requires_grad_()
    pool = torch.nn.functional.max_pool2d
    y, at = pool(x, size, stride, 1, return_indices=True)
    dy = torch.linspace(-1, 1, y.numel()).view_as(y)
    y.backward(dy)
    row = torch.arange(y.shape[2])[:, None] * stride - 1
    column = torch.arange(y.shape[3]) * stride - 1
    within = (at // shape[3] - row) * size + (at % shape[3] - column)
    gradient = te.placeholder(tuple(y.shape), "float32", name="gradient")
    position = te.placeholder(tuple(y.shape), "int32", name="position")
    window = {"pool_size": (size,) * 2, "strides": (stride,) * 2, "padding": (1,) * 4}
    found = max_pool_backward(gradient, position, **window, dilation=(1, 1), data_shape=shape)
    func = te.create_prim_func([gradient, position, found])
    (dx,) = run_kernel(func, NATIVE, dy.numpy(), within.numpy().astype("int32"))
    np.testing.assert_allclose(dx, x.grad.numpy(), rtol=1e-6)


STEPS = {
    "divide": (tirx.floordiv, np.floor_divide),
    "remainder": (tirx.floormod, np.mod),
    "multiply": (lambda index, n: index * n, np.multiply),
    "add": (lambda index, n: index + n, np.add),
    "subtract": (lambda index, n: index - n, np.subtract),
    "subtract_from": (lambda index, n: n - index, lambda index, n: n - index),
}
"""What is done to an index with a number: in a kernel, and by numpy."""


@st.composite
def indices(draw: st.DrawFn) -> tuple[Callable, Callable]:
    """A function of two loop variables: in a kernel, and by numpy."""
    variable = draw(st.sampled_from([0, 1]))
    numbers = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 21])
    steps = draw(
        st.lists(st.tuples(st.sampled_from(sorted(STEPS)), numbers), min_size=1, max_size=4)
    )

    def apply(side: int) -> Callable:
        def index(*variables):
            value = variables[variable]
            for name, number in steps:
                value = STEPS[name][side](value, number)
            return value

        return index

    return apply(0), apply(1)


def run_hidden(func: tirx.PrimFunc, *rest) -> list[np.ndarray]:
    """A kernel as TVM compiles it alone, with indices hidden."""
    return run_unscheduled(hide_indices(func), *rest)


@pytest.mark.parametrize("run", share([run_kernel, run_hidden], [run_kernel]))
@settings(max_examples=cases(400))
@given(at=st.tuples(indices(), indices()), extents=st.sampled_from([(36, 3), (8, 9), (5, 16)]))
def test_indices_that_divide(run, at, extents):
    shape = (9, 8)
    x = te.placeholder(shape, "float32", name="x")

    def read(i, j):
        found = [in_kernel(i, j) for in_kernel, _ in at]
        within = [tirx.all(n >= 0, n < extent) for n, extent in zip(found, shape, strict=True)]
        return tirx.if_then_else(tirx.all(*within), x[tuple(found)], tirx.const(-1, "float32"))

    values = np.arange(72, dtype="float32").reshape(shape)
    where = [by_numpy(*np.indices(extents)) for _, by_numpy in at]
    is_within = np.logical_and.reduce(
        [(n >= 0) & (n < extent) for n, extent in zip(where, shape, strict=True)]
    )
    expected = np.full(extents, -1, "float32")
    expected[is_within] = values[tuple(n[is_within] for n in where)]
    func = te.create_prim_func([x, te.compute(extents, read, name="y")])
    (y,) = run(func, NATIVE, values)
    np.testing.assert_array_equal(y, expected)
