"""Convolutions of images whose rows are no whole vectors."""

import numpy as np
import pytest
import torch
from tvm import te

from tests.kernels.kernels import BASELINE, NATIVE, run_kernel
from tests.shares import first
from tvm_xengine.kernels.te.convolution import conv_data_gradient


@pytest.mark.parametrize("description", [NATIVE, BASELINE, "llvm -mcpu=haswell"])
@pytest.mark.parametrize("width", first(3, [3, 7, 28, 6, 8, 12, 14, 17, 30, 56]))
def test_data_gradients_are_those_of_pytorch(width, description):
    for channels, height, window in ((4, 3, 3), (9, 5, 1), (5, 2, 5)):
        shape, weight = (2, channels, height, width), (7, channels, window, window)
        rng = np.random.default_rng(0)
        dy, w = (rng.normal(size=s).astype("float32") for s in ((2, 7, height, width), weight))
        inputs = [te.placeholder(a.shape, "float32", name=n) for a, n in ((dy, "dy"), (w, "w"))]
        options = {"strides": (1, 1), "dilation": (1, 1), "padding": (window // 2,) * 4}
        made = conv_data_gradient(*inputs, data_shape=shape, groups=1, **options)
        (found,) = run_kernel(te.create_prim_func([*inputs, made]), description, dy, w)
        expected = torch.nn.grad.conv2d_input(
            shape, torch.from_numpy(w), torch.from_numpy(dy), padding=window // 2
        ).numpy()
        np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())
