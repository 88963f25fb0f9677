"""Values with names are in short types what numpy finds, on a processor and lowered for a GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tests.kernels.kernels import NATIVE, run_kernel
from tvm_xengine.kernels.lower.gpu_lowering import lower_to_launches
from tvm_xengine.kernels.te.elementwise import derivative_kernel
from tvm_xengine.kernels.te.pointwise.table import POINTWISE
from tvm_xengine.kernels.te.reduction import extreme_position

SHAPE = (4, 9, 5)


def position(dtype: str, axis: int, *, largest: bool) -> tirx.PrimFunc:
    x = te.placeholder(SHAPE, dtype, name="x")
    where = extreme_position(x, axis=axis, keepdims=False, largest=largest, dtype="int64")
    return te.create_prim_func([x, where])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_first_extreme_is_found(dtype: str, largest: bool, axis: int) -> None:
    values = np.random.default_rng(axis).integers(-9, 9, SHAPE).astype(dtype)
    values[1, 2, 3] = np.nan
    (found,) = run_kernel(position(dtype, axis, largest=largest), NATIVE, values)
    search = np.argmax if largest else np.argmin
    np.testing.assert_array_equal(found, search(values.astype("float32"), axis))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_with_names_inside_expressions_are_those_of_the_elements(dtype: str) -> None:
    x = te.placeholder(SHAPE, dtype, name="x")
    mish = derivative_kernel("mish", POINTWISE["mish"].formula)
    func = te.create_prim_func([x, mish(x, shape=SHAPE)])
    values = np.linspace(-9, 25, 180).reshape(SHAPE).astype(dtype)
    (found,) = run_kernel(func, NATIVE, values)
    exact = values.astype("float64")
    exact *= np.tanh(np.log1p(np.exp(exact)))
    rounding = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(found.astype("float64"), exact, rtol=rounding, atol=1e-6)


def test_no_binding_of_bfloat16_is_left_for_a_gpu() -> None:
    func = position("bfloat16", 1, largest=True).with_attr("global_symbol", "main")
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    lowered = lower_to_launches(target)(tvm.IRModule({"main": func}))
    assert "T.let[T.bfloat16]" not in lowered.script()
