from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import ir, s_tir, te, tirx

from tests.kernels.kernels import NATIVE, run_kernel
from tvm_xengine.kernels.schedules.inline import inline_elementwise


def read_three_times(depth):
    """Each value reads the one before three times; none costs a transcendental function."""
    x = te.placeholder((64,), "float32", name="x")
    value = x
    for k in range(depth):
        value = shrunk(value, f"v{k}")
    return te.create_prim_func([x, value])


def shrunk(v, name):
    def element(i):
        return tirx.max(v[i] * 0.5, v[i] * v[i] * 0.1) - v[i] * 0.25

    return te.compute(v.shape, element, name=name)


def expressions(func):
    found = []
    tvm_ffi.structural_walk(func.body, (ir.Expr, lambda expr: found.append(1)))
    return len(found)


def test_values_that_each_read_the_one_before_often_grow_no_longer_than_their_number():
    sizes = []
    for depth in (12, 24):
        sch = s_tir.Schedule(read_three_times(depth))
        inline_elementwise(sch)
        sizes.append(expressions(sch.mod["main"]))
    assert sizes[1] < 3 * sizes[0] < 30_000


def test_a_long_chain_computes_what_it_says():
    x = np.linspace(-4, 4, 64, dtype="float32")
    (found,) = run_kernel(read_three_times(9), NATIVE, x)
    expected = x.astype("float64")
    for _ in range(9):
        expected = np.maximum(expected * 0.5, expected * expected * 0.1) - expected * 0.25
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    "read",
    [
        lambda t, b, i, j: t[i] + b[i, j],
        lambda t, b, i, j: t[j % 64] * b[i, j],
        lambda t, b, i, j: t[j // 8] - b[i, j],
    ],
)
def test_a_function_of_what_is_repeated_is_computed_once_for_each_element(read):
    x = te.placeholder((64,), "float32", name="x")
    b = te.placeholder((64, 512), "float32", name="b")
    t = te.compute((64,), lambda i: te.tanh(x[i]), name="t")
    y = te.compute((64, 512), lambda i, j: read(t, b, i, j), name="y")
    func = te.create_prim_func([x, b, y])
    sch = s_tir.Schedule(func)
    inline_elementwise(sch)
    assert sch.mod["main"].script().count("T.tanh") == 1
    assert len(sch.get_child_blocks(sch.get_sblock("root"))) == 2
    values = np.linspace(-2, 2, 64, dtype="float32"), np.ones((64, 512), "float32")
    (found,) = run_kernel(func, NATIVE, *values)
    i, j = np.indices((64, 512))
    np.testing.assert_allclose(found, read(np.tanh(values[0]), values[1], i, j), rtol=1e-5)
