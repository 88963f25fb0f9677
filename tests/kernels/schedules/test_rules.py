from __future__ import annotations

import inspect

import numpy as np
import pytest
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx, topi

from tests.kernels.kernels import BASELINE, NATIVE, run_kernel, run_unscheduled
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.schedules.rules import schedule_kernel
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.convolution import conv_data_gradient, conv_weight_gradient
from tvm_xengine.kernels.te.elementwise import sum_to_shape
from tvm_xengine.kernels.te.linear import (
    batch_matmul,
    linear,
    linear_data_gradient,
    linear_weight_gradient,
)
from tvm_xengine.kernels.te.losses.loss import cross_entropy_forward
from tvm_xengine.kernels.te.norms.batch_norm import batch_norm_backward, batch_norm_forward
from tvm_xengine.kernels.te.pooling import (
    avg_pool_backward,
    max_pool_backward,
    max_pool_forward,
)

TARGETS = [NATIVE, f"{NATIVE} -num-cores=2", BASELINE]


def law(example, **strategies):
    """A test on one telling example; its attribute `many` draws more of them."""

    def decorate(check):
        def test(**fixtures):
            check(**fixtures, **example)

        test.__name__ = check.__name__
        test.__signature__ = inspect.Signature(
            p for name, p in inspect.signature(check).parameters.items() if name not in strategies
        )
        test.many = settings(max_examples=40)(given(**strategies)(check))
        return test

    return decorate


extents = st.integers(1, 40)


def tensor(name, *shape, dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def check(inputs, outputs, description=NATIVE):
    """The scheduled kernel computes what the unscheduled one does."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    func = te.create_prim_func([*inputs, *outputs])
    rng = np.random.default_rng(0)
    arrays = [values(rng, i) for i in inputs]
    scheduled = run_kernel(func, description, *arrays)
    for got, want in zip(scheduled, run_unscheduled(func, BASELINE, *arrays), strict=True):
        scale = max(float(np.abs(want).max(initial=0)), 1e-6)
        np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=1e-5)


def values(rng, placeholder):
    shape = [int(extent) for extent in placeholder.shape]
    dtype = str(placeholder.dtype)
    if dtype.startswith("int"):
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("description", TARGETS)
@law({"m": 13, "n": 37, "k": 530}, m=extents, n=extents, k=st.integers(1, 600))
def test_matrix_products_of_any_size(description, m, n, k):
    x, w, dy = tensor("x", m, k), tensor("w", n, k), tensor("dy", m, n)
    check([x, w], linear(x, w), description)
    check([dy, w], linear_data_gradient(dy, w), description)
    check([x, dy], linear_weight_gradient(x, dy), description)


@law(
    {"batch": 3, "m": 7, "n": 18, "k": 5, "transpose_left": True, "transpose_right": True},
    batch=st.integers(1, 5),
    m=extents,
    n=extents,
    k=extents,
    transpose_left=st.booleans(),
    transpose_right=st.booleans(),
)
def test_batched_products_with_transposed_operands(batch, m, n, k, transpose_left, transpose_right):
    left = tensor("left", batch, *((k, m) if transpose_left else (m, k)))
    right = tensor("right", batch, *((n, k) if transpose_right else (k, n)))
    product = batch_matmul(
        left,
        right,
        transpose_left=transpose_left,
        transpose_right=transpose_right,
        output_batch=(batch,),
    )
    check([left, right], product, f"{NATIVE} -num-cores=2")


@law(
    {
        "batch": 2,
        "channels": 3,
        "filters": 4,
        "groups": 2,
        "height": 9,
        "width": 11,
        "kernel": 3,
        "stride": 2,
        "padding": 1,
        "dilation": 1,
    },
    batch=st.integers(1, 3),
    channels=st.integers(1, 5),
    filters=st.integers(1, 9),
    groups=st.sampled_from([1, 1, 2, 3]),
    height=st.integers(3, 12),
    width=st.integers(3, 18),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
    dilation=st.integers(1, 2),
)
def test_convolutions_and_their_gradients_with_any_attributes(
    batch, channels, filters, groups, height, width, kernel, stride, padding, dilation
):
    reach = dilation * (kernel - 1) + 1
    height, width = max(height, reach), max(width, reach)
    data_shape = (batch, channels * groups, height, width)
    out = [(e + 2 * padding - reach) // stride + 1 for e in (height, width)]
    x, dy = tensor("x", *data_shape), tensor("dy", batch, filters * groups, *out)
    w = tensor("w", filters * groups, channels, kernel, kernel)
    attributes = {
        "strides": (stride, stride),
        "padding": (padding,) * 4,
        "dilation": (dilation, dilation),
        "groups": groups,
    }
    if groups == 1:
        check([x, w], topi.nn.conv2d_nchw(x, w, stride, padding, dilation))
    else:
        check([x, w], topi.nn.group_conv2d_nchw(x, w, stride, padding, dilation, groups))
    check([dy, w], conv_data_gradient(dy, w, data_shape=data_shape, **attributes))
    check([x, dy], conv_weight_gradient(x, dy, kernel_shape=(kernel, kernel), **attributes))


@pytest.mark.parametrize("description", TARGETS)
def test_what_follows_a_product_is_computed_while_it_is_stored(description):
    x, w, bias = tensor("x", 2, 6, 9, 9), tensor("w", 7, 6, 3, 3), tensor("bias", 7)
    residual = tensor("residual", 2, 7, 9, 9)
    conv = topi.nn.conv2d_nchw(x, w, 1, 1, 1)
    biased = te.compute(conv.shape, lambda n, c, i, j: conv[n, c, i, j] + bias[c], name="biased")
    check([x, w, bias, residual], topi.nn.relu(topi.add(biased, residual)), description)


@pytest.mark.parametrize("depth", [100, 1300])
def test_sums_longer_than_a_panel_with_something_behind_them(depth):
    x, w = tensor("x", 13, depth), tensor("w", 21, depth)
    check([x, w], topi.multiply(topi.nn.leaky_relu(linear(x, w), 0.1), 0.5))


@law(
    {"batch": 2, "channels": 3, "height": 5, "width": 37},
    batch=st.integers(1, 4),
    channels=st.integers(1, 9),
    height=extents,
    width=extents,
)
def test_norms_and_channel_sums(batch, channels, height, width):
    x, dy = (tensor(name, batch, channels, height, width) for name in ("x", "dy"))
    gamma, beta, mean, inv_std = (tensor(n, channels) for n in ("gamma", "beta", "mean", "std"))
    check([x, gamma, beta], batch_norm_forward(x, gamma, beta, epsilon=1e-3, relu=True))
    backward = batch_norm_backward(dy, x, gamma, beta, mean, inv_std, relu=True, wanted=(True,) * 3)
    check([dy, x, gamma, beta, mean, inv_std], backward, f"{NATIVE} -num-cores=2")
    check([x], sum_to_shape(x, shape=(1, channels, 1, 1)))
    check([x], sum_to_shape(x, shape=(height, width)))


@law({"rows": 7, "columns": 39, "axis": 1}, rows=extents, columns=extents, axis=st.integers(0, 1))
def test_softmax_maximum_and_loss(rows, columns, axis):
    x, labels = tensor("x", rows, columns), tensor("labels", rows, dtype="int32")
    check([x], topi.nn.softmax(x, axis=axis))
    check([x], topi.max(x, axis=axis))
    if columns > 1:
        options = {"axis": 1, "label_smoothing": 0.0, "ignore_index": -100}
        check([x, labels], cross_entropy_forward(x, labels, **options), f"{NATIVE} -num-cores=2")


def test_a_loss_of_many_positions_is_added_up_row_by_row():
    """Equal terms, one after the other, would be 1.6e-6 off: their sum is rounded the same way each time."""
    x, labels = tensor("x", 2, 3, 16, 16), tensor("labels", 2, 16, 16, dtype="int32")
    made = cross_entropy_forward(x, labels, axis=1, label_smoothing=0.0, ignore_index=-100)
    func = te.create_prim_func([x, labels, *made])
    given = np.zeros((2, 3, 16, 16), "float32"), np.zeros((2, 16, 16), "int32")
    loss, *_ = run_kernel(func, NATIVE, *given)
    np.testing.assert_allclose(loss, np.log(3), rtol=5e-7)


@law(
    {"size": 9, "window": 3, "stride": 2},
    size=st.integers(4, 20),
    window=st.integers(2, 3),
    stride=st.integers(1, 2),
)
def test_pooling(size, window, stride):
    out = (size - window) // stride + 1
    x, dy = tensor("x", 2, 3, size, size), tensor("dy", 2, 3, out, out)
    position = tensor("position", 2, 3, out, out, dtype="int32")
    options = {
        "pool_size": (window, window),
        "strides": (stride, stride),
        "padding": (0,) * 4,
        "dilation": (1, 1),
    }
    check([x], max_pool_forward(x, output_shape=(2, 3, out, out), **options))
    options["data_shape"] = (2, 3, size, size)
    check([dy], avg_pool_backward(dy, count_include_pad=True, **options))
    check([dy, position], max_pool_backward(dy, position, **options))


@law({"shape": [3, 5, 7]}, shape=st.lists(st.integers(1, 20), min_size=0, max_size=4))
def test_elementwise_chains_keep_no_intermediate(shape):
    x = tensor("x", *shape)
    check([x], topi.tanh(topi.add(topi.nn.relu(x), topi.exp(x))), f"{NATIVE} -num-cores=2")


def test_integer_kernels_are_scheduled_too():
    x = tensor("x", 37, 41, dtype="int32")
    check([x], topi.sum(x, axis=1))


def test_vectors_are_used_for_sums():
    x = tensor("x", 8, 1024)
    func = te.create_prim_func([x, topi.sum(x, axis=1)])
    assert "x float>" in llvm_text(func)


def llvm_text(func):
    target = resolve_target(NATIVE)
    return compile_kernels([prepare_kernel(func, target)], target).inspect_source("ll")


def test_cores_share_large_kernels_only():
    target = resolve_target("llvm -mcpu=x86-64 -num-cores=2")
    large, small = tensor("x", 512, 512), tensor("x", 8, 8)
    assert prepare_kernel(te.create_prim_func([large, topi.tanh(large)]), target).is_parallel
    assert not prepare_kernel(te.create_prim_func([small, topi.tanh(small)]), target).is_parallel


@pytest.mark.slow
@pytest.mark.parametrize(
    "test",
    [
        test_batched_products_with_transposed_operands,
        test_convolutions_and_their_gradients_with_any_attributes,
        test_norms_and_channel_sums,
        test_softmax_maximum_and_loss,
        test_pooling,
        test_elementwise_chains_keep_no_intermediate,
    ],
)
def test_laws_hold_for_many_more_shapes(test):
    test.many()


def test_parts_of_a_strided_gradient_share_their_loops_with_what_follows():
    dy, w = tensor("dy", 2, 8, 20, 20), tensor("w", 8, 1, 3, 3)
    gradient = conv_data_gradient(
        dy,
        w,
        data_shape=(2, 8, 40, 40),
        strides=(2, 2),
        padding=(1,) * 4,
        dilation=(1, 1),
        groups=8,
    )
    mask = tensor("mask", 2, 8, 40, 40)
    masked = te.compute(mask.shape, lambda *i: gradient(*i) * mask(*i), name="masked")
    check([dy, w, mask], masked)
    kernel = prepare_kernel(te.create_prim_func([dy, w, mask, masked]), resolve_target(NATIVE))
    assert kernel.workspace_bytes <= 40 * 40 * 4


@pytest.mark.parametrize("width", [7, 12, 14])
def test_a_short_row_is_folded_in_pieces_that_fill_registers(width: int):
    """LLVM vectorises no loop of 9 to 15 that leaves some over; NaN, ties and positions stay."""
    options = {"pool_size": (2, 2), "strides": (2, 2), "padding": (0,) * 4, "dilation": (1, 1)}
    x = te.placeholder((2, 3, 8, 2 * width), name="x")
    func = te.create_prim_func([x, *max_pool_forward(x, **options, output_shape=(2, 3, 4, width))])
    values = np.random.default_rng(0).integers(-2, 2, (2, 3, 8, 2 * width)).astype("float32")
    values[0, 0, 0] = np.nan
    for found, expected in zip(
        run_kernel(func, NATIVE, values), run_unscheduled(func, NATIVE, values), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    scheduled = schedule_kernel(func, resolve_target(NATIVE))
    loops: list[int] = []
    tvm_ffi.structural_walk(scheduled.body, (tirx.For, lambda loop: loops.append(int(loop.extent))))
    assert width not in loops


def test_a_kernel_that_is_one_opaque_block_stays_as_it_is():
    data, values = tensor("data", 5, 16), tensor("values", 20, 16)
    at = tensor("at", 20, 16, dtype="int64")
    made = topi.scatter_elements(data, at, values, 0, "mean")
    func = te.create_prim_func([data, at, values, made])
    assert schedule_kernel(func, resolve_target(NATIVE)).same_as(func)
