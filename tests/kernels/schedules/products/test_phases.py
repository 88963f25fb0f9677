from __future__ import annotations

import pytest
from tvm import te

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
