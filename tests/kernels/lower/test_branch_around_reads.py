"""Selects stay selects where all that they read is inside, and become branches where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import ir, te, tirx

from tests.kernels.kernels import NATIVE, run_kernel
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.lower.search import any_part
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.pooling import max_pool_backward

EXTENT = 64


def chosen(reach: int, shift: int) -> tirx.PrimFunc:
    """y[i] = x[i + shift] where i is small, else 0, for i up to `reach`."""
    x = te.placeholder((EXTENT,), name="x")
    y = te.compute(
        (reach,),
        lambda i: tirx.Select(
            tirx.all(i + shift >= 0, i < EXTENT - shift), x[i + shift], tirx.const(0.0, "float32")
        ),
        name="y",
    )
    return te.create_prim_func([x, y])


def branches(func: tirx.PrimFunc) -> bool:
    lowered = prepare_kernel(func, resolve_target(NATIVE), "chosen").func
    return any_part(
        lowered.body,
        lambda part: (
            isinstance(part, ir.Call)
            and isinstance(part.op, ir.Op)
            and part.op.name == "prim.if_then_else"
        ),
    )


@pytest.mark.parametrize(
    ("reach", "shift", "is_guarded"),
    [(EXTENT - 3, 3, False), (EXTENT, 3, True), (EXTENT, -1, True), (EXTENT + 1, 0, True)],
)
def test_a_read_is_guarded_where_it_may_lie_outside(reach: int, shift: int, is_guarded: bool):
    func = chosen(reach, shift)
    x = np.random.default_rng(0).standard_normal(EXTENT).astype("float32")
    (y,) = run_kernel(func, NATIVE, x)
    at = np.arange(reach) + shift
    inside = (at >= 0) & (np.arange(reach) < EXTENT - shift)
    np.testing.assert_array_equal(y, np.where(inside, x[np.clip(at, 0, EXTENT - 1)], 0))
    assert branches(func) is is_guarded


def test_a_read_at_a_place_that_is_itself_read_is_guarded():
    x = te.placeholder((EXTENT,), name="x")
    places = te.placeholder((8,), "int32", name="places")
    y = te.compute(
        (8,),
        lambda i: tirx.Select(places[i] >= 0, x[places[i]], tirx.const(0.0, "float32")),
        name="y",
    )
    func = te.create_prim_func([x, places, y])
    assert branches(func)
    values = np.arange(EXTENT, dtype="float32")
    at = np.array([3, -(2**31), 5, -1, 0, 63, -7, 2], "int32")
    (found,) = run_kernel(func, NATIVE, values, at)
    np.testing.assert_array_equal(found, np.where(at >= 0, values[np.maximum(at, 0)], 0))


def test_what_is_guarded_inside_a_select_stays_so():
    x = te.placeholder((EXTENT,), name="x")
    zero = tirx.const(0.0, "float32")
    y = te.compute(
        (EXTENT,),
        lambda i: tirx.Select(x[i] > zero, tirx.if_then_else(i + 8 < EXTENT, x[i + 8], zero), zero),
        name="y",
    )
    values = np.random.default_rng(1).standard_normal(EXTENT).astype("float32")
    (found,) = run_kernel(te.create_prim_func([x, y]), NATIVE, values)
    ahead = np.concatenate([values[8:], np.zeros(8, "float32")])
    np.testing.assert_array_equal(found, np.where(values > 0, ahead, 0))


def test_a_branch_around_a_read_that_is_inside_is_a_select():
    x = te.placeholder((EXTENT,), name="x")
    zero = tirx.const(0.0, "float32")
    gradient = te.placeholder((EXTENT,), name="gradient")
    y = te.compute((EXTENT,), lambda i: tirx.if_then_else(x[i] > zero, gradient[i], zero), name="y")
    assert not branches(te.create_prim_func([x, gradient, y]))


def test_a_branch_around_what_takes_long_stays():
    x = te.placeholder((EXTENT,), name="x")
    zero = tirx.const(0.0, "float32")
    y = te.compute((EXTENT,), lambda i: tirx.if_then_else(x[i] > zero, te.exp(x[i]), zero))
    assert branches(te.create_prim_func([x, y]))


@pytest.mark.parametrize("width", [8, 9])
def test_the_gradient_of_a_pooling_depends_on_no_branch_but_at_the_border(width: int):
    gradient = te.placeholder((2, 3, 4, 4), name="gradient")
    position = te.placeholder((2, 3, 4, 4), "int32", name="position")
    y = max_pool_backward(
        *(gradient, position),
        pool_size=(2, 2),
        strides=(2, 2),
        padding=(0, 0, 0, 0),
        dilation=(1, 1),
        data_shape=(2, 3, width, width),
    )
    assert branches(te.create_prim_func([gradient, position, y])) is (width % 2 == 1)
