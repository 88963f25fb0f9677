from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.kernels.kernels import NATIVE, run_kernel
from tvm_xengine.kernels.schedules.blocks import read_blocks
from tvm_xengine.kernels.schedules.products.contraction import Contraction, read_contraction
from tvm_xengine.kernels.schedules.products.phases import split_block, split_contraction
from tvm_xengine.kernels.te.convolution import conv_data_gradient


def data_gradient(size, kernel, stride, groups=1):
    out = (size + 2 * (kernel // 2) - kernel) // stride + 1
    dy = te.placeholder((2, 8, out, out), "float32", name="dy")
    w = te.placeholder((8, 8 // groups, kernel, kernel), "float32", name="w")
    made = conv_data_gradient(
        dy,
        w,
        data_shape=(2, 8, size, size),
        strides=(stride, stride),
        padding=(kernel // 2,) * 4,
        dilation=(1, 1),
        groups=groups,
    )
    return te.create_prim_func([dy, w, made])


def contraction_of(func) -> Contraction:
    contraction = read_contraction(read_blocks(func), func.params)
    assert contraction is not None
    return contraction


@pytest.mark.parametrize(("stride", "phases"), [(1, 1), (2, 4), (3, 9)])
def test_a_strided_gradient_falls_into_one_part_per_remainder(stride, phases):
    assert len(split_contraction(contraction_of(data_gradient(12, 3, stride)))) == phases


def test_the_parts_multiply_nothing_by_zero():
    whole = contraction_of(data_gradient(12, 3, 2))
    parts = split_contraction(whole)
    assert sum(part.multiplications for part in parts) == whole.multiplications // 4
    assert not [part for part in parts if "% 2" in str(part.right)]


def test_positions_that_no_window_reaches_sum_nothing():
    parts = split_contraction(contraction_of(data_gradient(12, 1, 2)))
    multiplications = sorted(part.multiplications for part in parts)
    assert multiplications == [0, 0, 2 * 8 * 8 * 6 * 6]


def test_blocks_that_are_no_matrix_product_fall_apart_too():
    (block,) = read_blocks(data_gradient(12, 3, 2, groups=8))
    assert len(split_block(block)) == 4


TERMS = {
    "nothing": lambda is_mine, value: tirx.if_then_else(is_mine, value, tirx.const(0, "float32")),
    "else_one": lambda is_mine, value: tirx.if_then_else(is_mine, value, tirx.const(1, "float32")),
    "and_one": lambda is_mine, value: TERMS["nothing"](is_mine, value) + 1,
    "least": lambda is_mine, value: tirx.if_then_else(is_mine, value, tirx.const(-1e38, "float32")),
}


@pytest.mark.parametrize("fold", ["sum", "max"])
@pytest.mark.parametrize("term", sorted(TERMS))
def test_what_does_not_match_counts_where_it_is_not_nothing(fold, term):
    """A maximum of zeros was the least number, and a sum of ones nothing."""
    x = te.placeholder((9, 5), "float32", name="x")
    k = te.reduce_axis((0, 5), name="k")
    fold_of = {
        "sum": lambda value, axis: te.sum(value, axis=axis),
        "max": lambda value, axis: te.max(value, axis=axis),
    }[fold]
    y = te.compute(
        (9,), lambda i: fold_of(TERMS[term]((i + k) % 2 == 0, x[i, k]), axis=k), name="y"
    )
    values = -np.arange(1, 46, dtype="float32").reshape(9, 5)
    is_mine = np.add.outer(np.arange(9), np.arange(5)) % 2 == 0
    other = {"nothing": 0, "else_one": 1, "and_one": 1, "least": -1e38}[term]
    terms = np.where(is_mine, values + (term == "and_one"), np.float32(other))
    (found,) = run_kernel(te.create_prim_func([x, y]), NATIVE, values)
    np.testing.assert_allclose(found, getattr(terms, fold)(axis=1), rtol=1e-6)
