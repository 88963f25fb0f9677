"""Weight gradients of few channels run along rows, others as products of packed panels."""

import numpy as np
import pytest
import torch
from tvm import te

from tests.kernels.kernels import BASELINE, NATIVE, run_kernel
from tvm_xengine.kernels.schedules.rules import schedule_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.convolution import conv_weight_gradient

AVX512 = resolve_target("llvm -mcpu=skylake-avx512 -num-cores=1")


def gradient(x, dy, window, groups, padding):
    rank = len(window)
    inputs = [te.placeholder(shape, "float32", name=name) for shape, name in ((x, "x"), (dy, "dy"))]
    options = {"strides": (1,) * rank, "dilation": (1,) * rank, "padding": (padding,) * 2 * rank}
    shape = (dy[1], x[1] // groups, *window)
    made = conv_weight_gradient(*inputs, kernel_shape=shape[2:], groups=groups, **options)
    return te.create_prim_func([*inputs, made])


CASES = {
    "a window of 3 x 3": ((3, 6, 5, 16), (3, 4, 5, 16), (3, 3), 1, 1),
    "rows of many registers": ((2, 3, 4, 72), (2, 5, 4, 72), (3, 3), 1, 1),
    "one dimension": ((2, 7, 40), (2, 3, 40), (5,), 1, 2),
    "groups": ((2, 8, 6, 24), (2, 12, 6, 24), (3, 3), 4, 1),
    "three dimensions": ((2, 3, 4, 4, 8), (2, 4, 4, 4, 8), (3, 3, 3), 1, 1),
}


@pytest.mark.parametrize("description", [NATIVE, BASELINE])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_pytorch(name, description):
    x, dy, window, groups, padding = CASES[name]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape).astype("float32") for shape in (x, dy)]
    (found,) = run_kernel(gradient(x, dy, window, groups, padding), description, *values)
    weight = torch.zeros(dy[1], x[1] // groups, *window, requires_grad=True)
    convolve = getattr(torch.nn.functional, f"conv{len(window)}d")
    made = convolve(torch.from_numpy(values[0]), weight, padding=padding, groups=groups)
    made.backward(torch.from_numpy(values[1]))
    expected = weight.grad.numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, atol=2e-6)


@pytest.mark.parametrize(
    ("channels", "side", "window", "is_packed"),
    [
        *((16, 32, 3, False), (64, 16, 3, False), (512, 16, 3, True)),
        *((16, 14, 3, True), (32, 16, 1, True), (128, 64, 3, True), (32, 64, 5, False)),
    ],
)
def test_packing_is_for_many_channels_and_odd_rows(channels, side, window, is_packed):
    image = (4, channels, side, side)
    func = gradient(image, image, (window, window), 1, window // 2)
    text = schedule_kernel(func, AVX512).script()
    assert ("packed_right" in text) == is_packed
