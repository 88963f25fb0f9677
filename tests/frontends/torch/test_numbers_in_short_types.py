"""Operators of a tensor of a short type with a number are those of PyTorch's CPU, to the last bit."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.databases.vjp import evaluate
from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tvm_xengine.frontends.torch.arrays import to_array
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.forward.precision import MixedPrecision
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.recipe import Recipe

NUMBER = torch.tensor(1.1)
OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda h: h + 1.1,
    "add alpha": lambda h: torch.add(h, h.detach().flip(0), alpha=1.1),
    "add a number alpha": lambda h: torch.add(h, 3.3, alpha=0.7),
    "sub alpha": lambda h: torch.sub(h, h.detach().flip(0), alpha=-2.7),
    "rsub": lambda h: 1.1 - h,
    "mul": lambda h: h * 1.1,
    "mul by float32": lambda h: h * NUMBER,
    "div": lambda h: h / 1.1,
    "div by float32": lambda h: h / NUMBER,
    "div floor": lambda h: torch.div(h, 0.3, rounding_mode="floor"),
    "div trunc": lambda h: torch.div(h, 0.3, rounding_mode="trunc"),
    "remainder": lambda h: h % 1.1,
    "fmod": lambda h: torch.fmod(h, 1.1),
    "pow": lambda h: h.abs() ** 1.1,
    "pow of a number": lambda h: 1.1**h,
    "clamp": lambda h: h.clamp(-1.1, 1.1),
    "clamp_min": lambda h: h.clamp(min=1.1),
    "hardshrink": lambda h: functional.hardshrink(h, 1.1),
    "leaky_relu": lambda h: functional.leaky_relu(h, 0.3),
    "elu": lambda h: functional.elu(h, 1.1),
    "lower": lambda h: h < 1.1,
    "equal": lambda h: h == 1.1,
}
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


class Numbers(nn.Module):
    """Every operator of a table cast to a short type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        values = torch.randn(16, 32).to(dtype).float()
        values[0, :2] = torch.tensor([1.1, -1.1]).to(dtype)  # the bounds
        self.table = nn.Parameter(values)
        self.dtype = dtype

    def forward(self, _x: torch.Tensor) -> list[torch.Tensor]:
        h = self.table.to(self.dtype)
        return [function(h) for function in OPERATORS.values()]


@DTYPES
def test_results_are_those_of_pytorch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module, x = Numbers(dtype), torch.zeros(1)
    made = evaluate(exported(module, x), [x.numpy()], {})
    differing = {
        name: int((to_array(wanted.detach()) != found).sum())
        for name, wanted, found in zip(OPERATORS, module(x), made.outputs, strict=True)
    }
    # The power is another function of the C library, exact to a unit of the last place.
    assert differing.pop("pow of a number") < 5
    assert not any(differing.values())


@DTYPES
def test_gradients_are_those_of_pytorch_but_for_one_rounding(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module, x = Numbers(dtype), torch.zeros(1)
    model = exported(module, x)
    unit = torch.finfo(dtype).eps
    for position, (name, output) in enumerate(zip(OPERATORS, module(x), strict=True)):
        if name not in ("mul", "mul by float32", "div", "clamp", "hardshrink", "leaky_relu"):
            continue
        above = torch.randn(output.shape).to(dtype)
        (wanted,) = torch.autograd.grad(output, module.table, above)
        found = evaluate(model, [x.numpy()], {position: to_array(above)}).gradients["table"]
        # The kernel that ends with the cast to float32 stores what it has not rounded.
        np.testing.assert_allclose(found, wanted, rtol=0.51 * unit, atol=1e-9, err_msg=name)


class Scaled(nn.Module):
    """A product that is computed in a short type, times a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * 1.1 / 0.7


@DTYPES
def test_mixed_precision_rounds_no_numbers(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module, x = Scaled(), torch.randn(64, 8)
    target = torch.zeros(64, 8)
    precision = MixedPrecision(str(dtype).removeprefix("torch."))
    recipe = Recipe(loss=MEAN_SQUARED_ERROR, precision=precision)
    run = ReferenceRun(build_step_by_recipe(exported(module, x), recipe))
    with torch.autocast("cpu", dtype=dtype):
        wanted = functional.mse_loss(module(x).float(), target).item()
    # Roundings of elements are in all directions; those of the number were in one.
    assert run(x.numpy(), target.numpy())["loss"] == pytest.approx(
        wanted, rel=torch.finfo(dtype).eps / 16
    )
