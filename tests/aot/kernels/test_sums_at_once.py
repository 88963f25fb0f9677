"""Loops as written: a sum is used where it is made, unless its reader is elsewhere, too."""

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import ir, te, tirx

from tvm_xengine.aot.plan.kernels import Optimize, prepare_for_target
from tvm_xengine.kernels.store.kernel_store import load_kernels
from tvm_xengine.kernels.targets import resolve_target

Reader = Callable[[te.Tensor, ir.Var, ir.Var], ir.Expr]
ROWS, COLUMNS, TERMS = 3, 4, 5

READERS: dict[str, tuple[int, Reader, Callable[[np.ndarray], np.ndarray]]] = {
    "as large": (COLUMNS, lambda s, i, j: s[i, j] * 2.0, lambda s: s * 2),
    "padded behind": (
        7,
        lambda s, i, j: tirx.if_then_else(j < COLUMNS, s[i, j], 1.0),
        lambda s: np.pad(s, [(0, 0), (0, 3)], constant_values=1),
    ),
    "moved by one": (
        COLUMNS,
        lambda s, i, j: tirx.if_then_else(j >= 1, s[i, j - 1], 1.0),
        lambda s: np.pad(s, [(0, 0), (1, 0)], constant_values=1)[:, :-1],
    ),
    "clipped": (
        COLUMNS,
        lambda s, i, j: tirx.Select(s[i, j] > 0.0, s[i, j], tirx.const(0.0, "float32")),
        lambda s: np.maximum(s, 0),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_all_positions_are_written(name: str) -> None:
    extent, read, expected = READERS[name]
    x = te.placeholder((ROWS, COLUMNS, TERMS), name="x")
    k = te.reduce_axis((0, TERMS), name="k")
    summed = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(x[i, j, k], axis=k), name="summed")
    made = te.compute((ROWS, extent), lambda i, j: read(summed, i, j), name="made")
    func = te.create_prim_func([x, made], index_dtype_override="int64")
    func = func.with_attr("global_symbol", "sums")
    kernel = prepare_for_target(func, resolve_target("llvm"), "sums", Optimize.SIZE)
    run = load_kernels([kernel], None, None)[kernel.symbol][kernel.symbol]
    given = np.random.default_rng(0).standard_normal((ROWS, COLUMNS, TERMS), dtype=np.float32)
    found = tvm.runtime.tensor(np.full((ROWS, extent), np.nan, "float32"))
    workspace = tvm.runtime.tensor(np.zeros(max(kernel.workspace_bytes, 1), "uint8"))
    run(tvm.runtime.tensor(given), found, *([workspace] if kernel.workspace_bytes else []))
    np.testing.assert_allclose(found.numpy(), expected(given.sum(-1)), rtol=1e-5, atol=1e-6)
