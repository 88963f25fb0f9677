"""The place of an extreme is where PyTorch finds it: the first one, and NaN before all numbers."""

import itertools

import numpy as np
import pytest
import torch
from tvm import te

from tests.kernels.kernels import NATIVE, run_kernel
from tests.shares import first
from tvm_xengine.kernels.te.indexing.order import place_of_extreme

NAN, INF = float("nan"), float("inf")
SPECIAL = [
    *([1, NAN, 3, NAN], [INF, -INF, INF, 2], [-INF] * 4, [INF] * 4, [2, 5, 5, 1]),
    *([-0.0, 0.0, 0.0, -0.0], [NAN] * 4, [INF, INF, NAN, 1], [-INF, -INF, -3e38, -INF]),
]


def places(x, **options):
    data = te.placeholder(x.shape, str(x.dtype), name="x")
    func = te.create_prim_func([data, place_of_extreme(data, **options)])
    (found,) = run_kernel(func, NATIVE, x)
    return found


def expected(x, axis, largest, keepdims):
    search = torch.argmax if largest else torch.argmin
    return search(torch.from_numpy(x), axis, keepdim=keepdims).numpy()


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "dtype", first(2, ["float32", "int8", "float64", "float16", "int64", "uint8"])
)
def test_places_are_those_of_pytorch(dtype, largest):
    rng = np.random.default_rng(0)
    for shape, keepdims in itertools.product(
        [(3, 37, 5), (70,), (2, 1, 9), (4, 33)], [True, False]
    ):
        x = rng.integers(0, 9, shape).astype(dtype)
        for axis in range(len(shape)):
            options = {"axis": axis, "largest": largest, "keepdims": keepdims}
            np.testing.assert_array_equal(places(x, **options), expected(x, **options))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_comes_first_and_infinities_are_numbers(axis, largest):
    x = np.array(SPECIAL, "float32")
    x = x.T.copy() if axis == 0 else x
    options = {"axis": axis, "largest": largest, "keepdims": False}
    np.testing.assert_array_equal(places(x, **options), expected(x, **options))
