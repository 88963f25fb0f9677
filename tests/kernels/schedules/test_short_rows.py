"""Rows of few elements: several of them joined to one, and several channels at once."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx, topi

from tests.kernels.kernels import BASELINE, NATIVE
from tests.kernels.schedules.test_rules import check, tensor
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.schedules.rules import schedule_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.norms.batch_norm import batch_norm_backward, batch_norm_forward
from tvm_xengine.kernels.te.norms.row_norm import group_norm_forward, softmax_backward

TWO_CORES = f"{NATIVE} -num-cores=2"


def scheduled(inputs, outputs, description=NATIVE):
    outputs = outputs if isinstance(outputs, list) else [outputs]
    func = te.create_prim_func([*inputs, *outputs])
    return schedule_kernel(func, resolve_target(description))


def shapes(func):
    return [tuple(int(extent) for extent in param.ty.shape) for param in func.params]


def loops(func):
    """Extents of the loops of a kernel, vectors included."""
    found = []
    tvm_ffi.structural_walk(func.body, (tirx.For, lambda loop: found.append(int(loop.extent))))
    return found


@pytest.mark.parametrize("description", [NATIVE, TWO_CORES, BASELINE, "c"])
@pytest.mark.parametrize(
    "shape",
    [
        *((3, 5, 4, 4), (2, 6, 7, 7)),
        *(
            pytest.param(shape, marks=pytest.mark.slow)
            for shape in ((4, 8, 1, 3), (1, 2, 31, 2), (6, 1, 5, 9))
        ),
    ],
)
def test_kernels_compute_the_same_with_longer_rows(shape, description):
    x, dy = tensor("x", *shape), tensor("dy", *shape)
    channel = [tensor(name, shape[1]) for name in ("gamma", "beta", "mean", "inv_std")]
    for inputs, outputs in (
        ([x], topi.nn.relu(x)),
        ([x], topi.nn.softmax(x, 1)),
        ([dy, x], softmax_backward(dy, x, axis=1)),
        ([x], topi.sum(x, axis=[2, 3])),
        ([x], topi.sum(x, axis=[0])),
        ([x, *channel[:2]], batch_norm_forward(x, *channel[:2], epsilon=1e-5, relu=True)),
        ([x, *channel[:2]], group_norm_forward(x, *channel[:2], groups=1, epsilon=1e-5)),
        (
            [dy, x, *channel],
            batch_norm_backward(dy, x, *channel, relu=False, wanted=(True, True, True)),
        ),
    ):
        if description == "c":
            scheduled(inputs, outputs, description)
        else:
            check(inputs, outputs, description)


@pytest.mark.parametrize(
    "shape", [(0, 5, 4, 4), (2, 0, 4, 4), (2, 5, 0, 4), (2, 5, 4, 0), (1, 0, 0, 0)]
)
def test_kernels_over_nothing_are_prepared(shape):
    x = tensor("x", *shape)
    for made in (topi.nn.softmax(x, 1), topi.nn.relu(x), softmax_backward(x, x, axis=2)):
        for description in (NATIVE, TWO_CORES):
            assert prepare_kernel(
                te.create_prim_func([x, made]), resolve_target(description)
            ).outputs


def test_height_and_width_are_one_axis_where_no_block_looks_at_rows():
    x = tensor("x", 8, 32, 32, 32)
    assert shapes(scheduled([x], topi.nn.softmax(x, 1)))[0] == (8, 32, 1024)


def test_rows_stay_where_a_kernel_looks_at_them():
    x = tensor("x", 2, 3, 8, 8)
    shifted = te.compute(
        (2, 3, 8, 8), lambda n, c, h, w: x[n, c, h, tirx.max(w - 1, 0)], name="shifted"
    )
    numbered = te.compute(
        (2, 3, 8, 8), lambda n, c, h, w: x[n, c, h, w] * w.astype("float32"), name="numbered"
    )
    for made in (shifted, numbered):
        assert [shape[-2:] for shape in shapes(scheduled([x], made))] == [(8, 8), (8, 8)]
        check([x], made)


def test_a_part_of_a_tensor_is_not_taken_for_its_rows():
    x = tensor("x", 2, 3, 8, 8)
    corner = te.compute((2, 3, 5, 4), lambda n, c, h, w: x[n, c, h, w] * 2.0, name="corner")
    assert shapes(scheduled([x], corner))[0][-2:] == (8, 8)
    check([x], corner)


def test_rows_become_no_longer_than_leaves_work_for_all_cores():
    x = tensor("x", 1, 4096, 4, 4)
    doubled = te.compute(x.shape, lambda *i: te.exp(x(*i)), name="doubled")
    alone, shared = (
        scheduled([x], doubled, target) for target in (NATIVE, f"{NATIVE} -num-cores=4")
    )
    assert math.prod(loops(alone)) == math.prod(loops(shared)) == 4096 * 16
    assert max(loops(alone)) == 2**14
    assert min(extent for extent in loops(shared) if extent > 4) >= 16


def test_a_norm_of_small_images_reads_several_channels_of_an_image_at_once():
    """What lies side by side is read together: 4 channels of 16 elements, 8 of 4."""
    for (channels, size), at_once in {(24, 4): 4, (24, 2): 8, (7, 4): 1, (24, 9): 1}.items():
        x = tensor("x", 16, channels, size, size)
        gamma, beta = tensor("gamma", channels), tensor("beta", channels)
        made = batch_norm_forward(x, gamma, beta, epsilon=1e-5, relu=False)
        assert channels // at_once in loops(scheduled([x, gamma, beta], made))
        check([x, gamma, beta], made)
        check([x, gamma, beta], made, TWO_CORES)


def test_long_sums_in_turn_stay_row_by_row():
    """A gathered value is added up number by number, and a longer row would round more."""
    x, at = tensor("x", 2, 3, 16, 16), tensor("at", 2, 16, 16, dtype="int32")
    n, h, w = (
        te.reduce_axis((0, extent), name=name) for name, extent in (("n", 2), ("h", 16), ("w", 16))
    )
    total = te.compute(
        (1,), lambda _: te.sum(x[n, at[n, h, w], h, w], axis=[n, h, w]), name="total"
    )
    assert shapes(scheduled([x, at], total))[1] == (2, 16, 16)
    check([x, at], total)


def scaled(x, y):
    return te.compute(x.shape, lambda *i: x(*i) * y(i[-1]), name="scaled")


@pytest.mark.slow
def test_elementwise_kernels_of_many_shapes():
    rng = np.random.default_rng(0)
    for _, cores in product(range(40), (1, 2)):
        shape = [int(extent) for extent in rng.integers(1, 20, rng.integers(1, 6))]
        x, y = tensor("x", *shape), tensor("y", shape[-1])
        check([x, y], scaled(x, y), f"{NATIVE} -num-cores={cores}")
