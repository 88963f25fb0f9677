"""Long lines are sorted by merging, in the order of PyTorch's stable sort."""

import numpy as np
import pytest
import torch
from tvm import te

from tests.kernels.kernels import NATIVE, run_kernel
from tests.shares import share
from tests.training.autograd import Operator, exported, worst_gradient_error
from tvm_xengine.kernels.te.indexing.merge_sort import ranked_by_merging

NAN, INF = float("nan"), float("inf")


def places(x, **options):
    data = te.placeholder(x.shape, str(x.dtype), name="x")
    (found,) = run_kernel(ranked_by_merging(data, dtype="int64", **options), NATIVE, x)
    return found


DTYPES = ("float32", "float64", "float16", "int32", "uint8")
SOME_LENGTHS, LENGTHS = (2, 65, 257), (1, 2, 3, 8, 65, 100, 257)
FAST = [("float32", SOME_LENGTHS), ("uint8", SOME_LENGTHS)]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(
    ("dtype", "lengths"), share([*FAST, *((dtype, LENGTHS) for dtype in DTYPES)], FAST)
)
def test_the_order_is_that_of_a_stable_sort(dtype, lengths, descending):
    rng = np.random.default_rng(0)
    for length in lengths:
        x = rng.integers(0, 40, (2, length, 3)).astype(dtype)
        if "float" in dtype:
            x.reshape(-1)[:: max(length // 9, 2)] = [NAN, INF, -INF, -0.0][length % 4]
        wanted = torch.from_numpy(x).sort(dim=1, descending=descending, stable=True).indices.numpy()
        for first, count in {(0, length), (length // 2, 1), (0, min(3, length))}:
            found = places(x, first=first, count=count, descending=descending)
            np.testing.assert_array_equal(found, wanted[:, first : first + count])


FUNCTIONS = {
    "sort": lambda x: x.sort(1, descending=True).values[:, ::3] * torch.arange(40),
    "topk": lambda x: x.topk(7, 1, largest=False).values,
    "median": lambda x: x.median(1).values,
    "kthvalue": lambda x: x.kthvalue(70, 1).values,
    "first axis": lambda x: x.flatten().sort(0).values.cumsum(0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_go_where_elements_came_from(name):
    torch.manual_seed(0)
    x = torch.randn(3, 120)
    module = Operator(FUNCTIONS[name], x.shape)
    assert worst_gradient_error(exported(module, x), module, x, torch.tensor([1])) < 2e-5
