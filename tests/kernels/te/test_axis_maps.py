"""Interpolation and means of windows along axes, and their transposes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.kernels.kernels import NATIVE, run_kernel
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
@pytest.mark.parametrize("coordinates", COORDINATES)
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
