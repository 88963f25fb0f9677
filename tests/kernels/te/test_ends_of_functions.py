"""Functions keep their digits near zero, where they saturate, and in their tails."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional
from tvm import te
from tvm.tirx import Expr

from tests.kernels.kernels import BASELINE, NATIVE, run_kernel
from tvm_xengine.kernels.te.pointwise.activations import ACTIVATIONS
from tvm_xengine.kernels.te.pointwise.functions import expm1, log1p
from tvm_xengine.kernels.te.pointwise.special import erfc, erfinv

SMALL = np.logspace(-30, -1, 120)
WIDE = np.concatenate([np.linspace(-80, 80, 641), SMALL, -SMALL])
UNIT = np.concatenate([1 - np.logspace(-16, -1, 90), SMALL])
UNIT = np.concatenate([UNIT, -UNIT])
FUNCTIONS: dict[str, tuple[Callable[[Expr], Expr], Callable, np.ndarray]] = {
    "tanh": (te.tanh, torch.tanh, WIDE),
    "atanh": (te.atanh, torch.atanh, UNIT),
    "expm1": (expm1, torch.expm1, WIDE),
    "log1p": (log1p, torch.log1p, np.concatenate([WIDE[WIDE > 0], UNIT])),
    "erfc": (erfc, torch.erfc, WIDE[WIDE < 9]),
    "erfinv": (erfinv, torch.erfinv, UNIT),
    "softplus": (
        lambda a: ACTIVATIONS["softplus"].formula(a, 1.0, 20.0),
        functional.softplus,
        WIDE,
    ),
    "logsigmoid": (ACTIVATIONS["logsigmoid"].formula, functional.logsigmoid, WIDE),
    "mish": (ACTIVATIONS["mish"].formula, functional.mish, WIDE),
}


@pytest.mark.parametrize("description", [NATIVE, BASELINE])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_right_in_every_digit(name: str, dtype: str, description: str) -> None:
    ours, torchs, where = FUNCTIONS[name]
    x = where.astype(dtype)
    data = te.placeholder(x.shape, dtype, name="x")
    result = te.compute(x.shape, lambda i: ours(data(i)), name="y")
    (found,) = run_kernel(te.create_prim_func([data, result]), description, x)
    expected = torchs(torch.tensor(x).double()).numpy()
    with np.errstate(over="ignore"):
        expected = expected.astype(dtype)
    digits = 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, digits, np.finfo(dtype).tiny * 16)
