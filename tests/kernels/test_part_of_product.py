"""A kernel that stores a part of a product only writes that part."""

import numpy as np
import pytest
import tvm
from tvm import te

from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.store.kernel_store import load_kernels
from tvm_xengine.kernels.targets import resolve_target

BEYOND = 64


@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64", "llvm -mcpu=native"])
@pytest.mark.parametrize(("rows", "columns"), [(8, 3), (5, 9), (2, 2)])
def test_the_rest_of_the_product_is_not_stored(rows: int, columns: int, target: str) -> None:
    x, w = (te.placeholder((extent, 9), name=name) for extent, name in ((8, "x"), (9, "w")))
    k = te.reduce_axis((0, 9), name="k")
    product = te.compute((8, 9), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="product")
    part = te.compute((rows, columns), lambda i, j: product[i, j] + 1.0, name="part")
    func = te.create_prim_func([x, w, part], index_dtype_override="int64")
    func = func.with_attr("global_symbol", "part")
    kernel = prepare_kernel(func, resolve_target(target), "part")
    run = load_kernels([kernel], None, None)[kernel.symbol][kernel.symbol]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape, dtype=np.float32) for shape in ((8, 9), (9, 9))]
    whole = tvm.runtime.tensor(np.zeros(rows * columns + BEYOND, "float32"))
    found = whole._create_view((rows, columns))
    workspace = [tvm.runtime.tensor(np.zeros(kernel.workspace_bytes, "uint8"))]
    run(
        *(tvm.runtime.tensor(value) for value in given),
        found,
        *(workspace if kernel.workspace_bytes else []),
    )
    expected = (given[0] @ given[1].T + 1)[:rows, :columns]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert not whole.numpy()[rows * columns :].any()
