"""Maxima of large windows, in passes, are PyTorch's: ties, bounds and NaN."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.kernels.kernels import BASELINE, NATIVE, run_kernel
from tests.shares import first
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.pooling import max_pool_forward

torch = pytest.importorskip("torch")

WINDOWS = [
    ((5, 5), 1, 2, 1),
    ((4, 3), 2, 1, 1),
    ((3, 4), 3, 0, 2),
    ((7, 7), 1, 3, 1),
    ((2, 9), 1, 1, 1),
]


@pytest.mark.parametrize(
    ("description", "dtype"),
    [
        (NATIVE, "float32"),
        *(
            pytest.param(*other, marks=pytest.mark.slow)
            for other in ((NATIVE, "float64"), (NATIVE, "float16"), (BASELINE, "float32"))
        ),
    ],
)
@pytest.mark.parametrize("images", first(1, [3, 17]))
@pytest.mark.parametrize(("window", "stride", "padding", "dilation"), WINDOWS)
def test_maxima_and_their_places(window, stride, padding, dilation, dtype, description, images):
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, (images, 2, 13, 19)).astype(dtype)
    x[rng.random(x.shape) < 0.02] = np.nan
    x[rng.random(x.shape) < 0.05] = np.inf
    x[1, :, :9] = -np.inf
    pool = torch.nn.MaxPool2d(window, stride, padding, dilation, return_indices=True)
    expected, flat = (value.numpy() for value in pool(torch.from_numpy(x)))
    data = te.placeholder(x.shape, dtype, name="x")
    made = max_pool_forward(
        data,
        pool_size=window,
        strides=(stride,) * 2,
        padding=(padding,) * 4,
        dilation=(dilation,) * 2,
        output_shape=expected.shape,
    )
    found, place = run_kernel(te.create_prim_func([data, *made]), description, x)
    np.testing.assert_array_equal(found, expected)
    rows, columns = (np.arange(extent) * stride - padding for extent in expected.shape[2:])
    row = rows[:, None] + place // window[1] * dilation
    column = columns + place % window[1] * dilation
    np.testing.assert_array_equal(row * x.shape[3] + column, flat)


def test_pooling_of_a_few_images_needs_no_memory_of_its_own():
    """What the passes store would be most of what a board has beside the image."""
    for batch, is_stored in ((1, False), (8, True)):
        data = te.placeholder((batch, 8, 28, 28), "float32", name="x")
        window = {"pool_size": (3, 3), "strides": (1, 1), "padding": (1,) * 4, "dilation": (1, 1)}
        made = max_pool_forward(data, output_shape=data.shape, **window)
        kernel = prepare_kernel(te.create_prim_func([data, *made]), resolve_target(NATIVE))
        assert (kernel.workspace_bytes > 0) == is_stored
