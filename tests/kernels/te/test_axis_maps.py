"""Interpolation and means of windows along axes, and their transposes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.nn import functional
from tvm import te

from tests.kernels.kernels import NATIVE, run_kernel
from tests.shares import first
from tvm_xengine.kernels.te.axis_maps import map_axes
from tvm_xengine.kernels.te.pooling import adaptive_avg_pool, adaptive_avg_pool_backward
from tvm_xengine.kernels.te.resize import Interpolation, resize, resize_backward

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
METHODS = [("linear", ""), ("cubic", "")] + [
    ("nearest_neighbor", rounding)
    for rounding in ("floor", "ceil", "round", "round_prefer_ceil", "round_prefer_floor")
]
SIZES = [(4, 8), (5, 13), (13, 5), (1, 6)]
MORE_SIZES = [(8, 4), (7, 7), (6, 1), (3, 40), (40, 3)]


def options(method, rounding, coordinates):
    return {
        "method": method,
        "rounding": rounding,
        "coordinates": coordinates,
        "alpha": -0.75,
        "exclude_outside": False,
    }


def matrix(size, made):
    """What a kernel makes of each unit vector: a column each."""
    x = te.placeholder((size, 1, size), "float32", name="x")
    (y,) = run_kernel(
        te.create_prim_func([x, made(x)]), NATIVE, np.eye(size, dtype="float32")[:, None]
    )
    return y[:, 0].T


@pytest.mark.parametrize("sizes", [SIZES, pytest.param(MORE_SIZES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("coordinates", first(2, COORDINATES))
@pytest.mark.parametrize(("method", "rounding"), METHODS)
def test_the_way_back_is_the_transpose(method, rounding, coordinates, sizes):
    how = options(method, rounding, coordinates)
    for size, out_size in sizes:
        forward = matrix(size, lambda x, n=out_size: resize(x, size=(n,), **how))
        backward = matrix(
            out_size, lambda dy, n=size, m=out_size: resize_backward(dy, shape=(m, 1, n), **how)
        )
        np.testing.assert_allclose(backward, forward.T, atol=1e-6, err_msg=f"{size} to {out_size}")
        np.testing.assert_allclose(forward.sum(1), 1, atol=1e-5)


HALVES = {
    "floor": lambda x: math.floor(x),
    "ceil": lambda x: math.ceil(x),
    "round": lambda x: math.floor(x + Fraction(1, 2)),
    "round_prefer_floor": lambda x: math.ceil(x - Fraction(1, 2)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rounding", HALVES)
def test_halfway_between_two_inputs_both_kernels_take_the_same(rounding, dtype):
    how = options("nearest_neighbor", rounding, "half_pixel")
    for size, out_size in (6, 5), (4, 6), (4, 5), (30_000, 40_000):
        places = [
            min(
                max(
                    HALVES[rounding](Fraction((2 * q + 1) * size, 2 * out_size) - Fraction(1, 2)), 0
                ),
                size - 1,
            )
            for q in range(out_size)
        ]
        x, dy = np.arange(size, dtype=dtype), np.arange(out_size, dtype=dtype)
        given = te.placeholder((1, 1, size), dtype, name="x")
        gradient = te.placeholder((1, 1, out_size), dtype, name="dy")
        (y,) = run_kernel(
            te.create_prim_func([given, resize(given, size=(out_size,), **how)]),
            NATIVE,
            x[None, None],
        )
        (dx,) = run_kernel(
            te.create_prim_func([gradient, resize_backward(gradient, shape=(1, 1, size), **how)]),
            NATIVE,
            dy[None, None],
        )
        np.testing.assert_array_equal(y[0, 0], x[places])
        np.testing.assert_array_equal(dx[0, 0], np.bincount(places, dy, minlength=size))


@pytest.mark.parametrize(("size", "out_size"), [*SIZES, *MORE_SIZES])
def test_means_of_adaptive_windows_and_their_transpose(size, out_size):
    expected = np.zeros((out_size, size))
    for q in range(out_size):
        first, end = q * size // out_size, -(-(q + 1) * size // out_size)
        expected[q, first:end] = 1 / (end - first)
    forward = matrix(size, lambda x: adaptive_avg_pool(x, output_size=(out_size,)))
    np.testing.assert_allclose(forward, expected, atol=1e-6)
    backward = matrix(
        out_size, lambda dy: adaptive_avg_pool_backward(dy, data_shape=(out_size, 1, size))
    )
    np.testing.assert_allclose(backward, expected.T, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "scale", "reads"),
    [("nearest_neighbor", 2, 2), ("nearest_neighbor", 3, 3), ("linear", 2, 4), ("cubic", 2, 8)],
)
def test_a_gradient_reads_what_read_its_input_and_no_more(method, scale, reads):
    how = Interpolation(**options(method, "floor", "half_pixel" if reads > 3 else "asymmetric"))
    back = how.along(16, 16 * scale).transposed()
    assert int(np.max(back.last - back.first)) + 1 == reads


def test_what_is_not_finite_stays_with_the_elements_that_read_it():
    x = np.zeros((1, 1, 12), "float32")
    x[..., 6] = np.inf
    how = options("linear", "", "half_pixel")
    data = te.placeholder(x.shape, "float32", name="x")
    back = resize_backward(data, shape=(1, 1, 6), **how)
    (found,) = run_kernel(te.create_prim_func([data, back]), NATIVE, x)
    read = Interpolation(**how).along(6, 12)
    readers = [p for p in range(6) if read.first[6] <= p <= read.last[6]]
    assert np.isfinite(np.delete(found[0, 0], readers)).all()
    assert not np.isfinite(found[0, 0, readers]).any()


def test_halves_are_mapped_in_single_precision():
    x = te.placeholder((1, 2, 4), "float16", name="x")
    maps = [Interpolation(**options("linear", "", "half_pixel")).along(4, 8)]
    assert str(map_axes(x, maps, "float32").dtype) == "float16"


def test_windows_of_a_long_axis_are_counted_beyond_32_bits():
    x = torch.rand(1, 1, 100_000, requires_grad=True)
    wanted = functional.adaptive_avg_pool1d(x, 70_001)
    dy = torch.rand(wanted.shape)
    wanted.backward(dy)
    data, gradient = (te.placeholder(one.shape, "float32", name="x") for one in (x, dy))
    made = adaptive_avg_pool(data, output_size=(70_001,))
    back = adaptive_avg_pool_backward(gradient, data_shape=tuple(x.shape))
    for given, result, value, expected in (
        (data, made, x.detach(), wanted.detach()),
        (gradient, back, dy, x.grad),
    ):
        (found,) = run_kernel(te.create_prim_func([given, result]), NATIVE, value.numpy())
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)
