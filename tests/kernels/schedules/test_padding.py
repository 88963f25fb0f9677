from __future__ import annotations

import pytest
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import ir, te, tirx, topi

from tests.kernels.kernels import BASELINE, NATIVE
from tests.kernels.schedules.test_rules import check, tensor
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.convolution import conv_data_gradient, conv_weight_gradient

CASES = [
    # batch, channels, height, width, kernel, stride, padding, dilation
    (NATIVE, (2, 3, 7, 7, 5, 1, 2, 1)),
    (BASELINE, (1, 4, 5, 14, 3, 1, 1, 1)),
    (NATIVE, (2, 2, 9, 33, 3, 2, 1, 1)),
    (f"{NATIVE} -num-cores=2", (4, 8, 40, 40, 3, 1, 1, 1)),
    (NATIVE, (2, 2, 12, 12, 3, 1, 2, 2)),
    (BASELINE, (3, 2, 4, 80, 7, 3, 3, 1)),
    (NATIVE, (1, 1, 3, 3, 3, 1, 1, 1)),
]


def single_channels(batch, channels, height, width, kernel, stride, padding, dilation):
    """A convolution of each channel and its gradients: (inputs, output) each."""
    reach = dilation * (kernel - 1) + 1
    data_shape = (batch, channels, height, width)
    out = [(extent + 2 * padding - reach) // stride + 1 for extent in (height, width)]
    x, dy = tensor("x", *data_shape), tensor("dy", batch, channels, *out)
    w = tensor("w", channels, 1, kernel, kernel)
    attributes = {
        "strides": (stride, stride),
        "padding": (padding,) * 4,
        "dilation": (dilation, dilation),
        "groups": channels,
    }
    forward = topi.nn.group_conv2d_nchw(x, w, stride, padding, dilation, channels)
    return [
        ([x, w], forward),
        ([dy, w], conv_data_gradient(dy, w, data_shape=data_shape, **attributes)),
        ([x, dy], conv_weight_gradient(x, dy, kernel_shape=(kernel, kernel), **attributes)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("description", "case"), CASES)
def test_convolutions_of_single_channels_compute_what_they_did(description, case):
    for inputs, output in single_channels(*case):
        check(inputs, output, description)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(3, 20),
    st.integers(3, 70),
    st.integers(1, 7),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 2),
)
def test_they_do_for_any_attributes(
    batch, channels, height, width, kernel, stride, padding, dilation
):
    reach = dilation * (kernel - 1) + 1
    height, width = max(height, reach), max(width, reach)
    for inputs, output in single_channels(
        batch, channels, height, width, kernel, stride, padding, dilation
    ):
        check(inputs, output)


def test_no_element_is_asked_where_it_lies_and_the_copy_is_small():
    for inputs, output in single_channels(4, 8, 28, 28, 3, 1, 1, 1):
        kernel = prepare_kernel(te.create_prim_func([*inputs, output]), resolve_target(NATIVE))
        assert "prim.if_then_else" not in called(kernel.func)
        assert 0 < kernel.workspace_bytes <= 4 * 30 * 40 * 4


def test_images_of_a_few_pixels_are_not_copied():
    (inputs, output), *_ = single_channels(1, 8, 4, 4, 3, 1, 1, 1)
    func = te.create_prim_func([*inputs, output])
    assert prepare_kernel(func, resolve_target(NATIVE)).workspace_bytes == 0


def test_what_lies_outside_may_be_anything():
    x = tensor("x", 2, 3, 9, 10)
    k, j = te.reduce_axis((0, 3), name="k"), te.reduce_axis((0, 3), name="j")

    def largest(n, c, h, w):
        y, z = h + k - 1, w + j - 1
        inside = tirx.all(y >= 0, y < 9, z >= 0, z < 10)
        return te.max(tirx.if_then_else(inside, x[n, c, y, z], -3e38), axis=[k, j])

    check([x], te.compute((2, 3, 9, 10), largest, name="largest"))


def test_a_condition_on_something_else_stays():
    x = tensor("x", 2, 3, 9, 20)
    k = te.reduce_axis((0, 3), name="k")

    def some(n, c, h, w):
        inside = tirx.all(h + k >= 1, h + k < 10, (w + k) % 2 == 0)
        return te.sum(tirx.if_then_else(inside, x[n, c, h + k - 1, w], 0.0), axis=[k])

    check([x], te.compute((2, 3, 9, 20), some, name="some"))


def called(func):
    names = set()
    tvm_ffi.structural_walk(
        func.body,
        (ir.Call, lambda call: names.add(call.op.name) if isinstance(call.op, ir.Op) else None),
    )
    return names
