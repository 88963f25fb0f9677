"""Flat indices under conditions on the remainder of a loop variable."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.kernels.kernels import NATIVE, run_kernel, run_unscheduled


@pytest.mark.parametrize("run", [run_kernel, run_unscheduled])
@pytest.mark.parametrize(("size", "padding", "rows"), [(3, 1, 9), (4, 2, 11), (2, 1, 6)])
def test_windows_that_do_not_reach_the_last_rows(run, size, padding, rows):
    # With 9 rows TVM made (outer + 1) // 3 * 3 - 9 of outer // 9 * 9 + (outer % 9 + 1) // 3 * 3.
    windows, columns = (rows + padding) // size, 8
    gradient = te.placeholder((2, 4, windows, columns), "float32", name="gradient")

    def spread(n, c, i, j):
        is_inside = tirx.all(i >= -padding, i < windows * size - padding)
        return tirx.if_then_else(
            is_inside, gradient[n, c, (i + padding) // size, j] / 9.0, tirx.const(0, "float32")
        )

    func = te.create_prim_func([gradient, te.compute((2, 4, rows, columns), spread, name="y")])
    dy = np.random.default_rng(0).uniform(-1, 1, (2, 4, windows, columns)).astype("float32")
    expected = np.zeros((2, 4, rows, columns), "float32")
    for i in range(min(rows, windows * size - padding)):
        expected[:, :, i] = dy[:, :, (i + padding) // size] / np.float32(9.0)
    (y,) = run(func, NATIVE, dy)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
