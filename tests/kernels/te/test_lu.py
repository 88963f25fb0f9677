"""Solutions from Gauss's factors, whatever the pivots are."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.kernels.kernels import run_kernel
from tvm_xengine.kernels.te.linalg.lu import lu_solve


@pytest.mark.parametrize("transposed", [False, True])
def test_pivots_that_name_no_row_are_taken_for_the_nearest(transposed: bool) -> None:
    """Kernels are timed with zeros for integers, and no kernel may write outside its tensors."""
    factors = te.placeholder((2, 4, 4), "float32")
    pivots, right = te.placeholder((2, 4), "int32"), te.placeholder((2, 4, 3), "float32")
    func = lu_solve(factors, pivots, right, transposed=transposed)
    rng = np.random.default_rng(0)
    values = (
        rng.uniform(1, 2, (2, 4, 4)).astype("float32"),
        rng.standard_normal((2, 4, 3)).astype("float32"),
    )
    wrong = np.array([[0, -(2**31), 2**31 - 1, 4], [5, 2, 0, 99]], "int32")
    found, expected = (
        run_kernel(func, "llvm", values[0], given, values[1])[0]
        for given in (wrong, np.clip(wrong, 1, 4))
    )
    np.testing.assert_array_equal(found, expected)
