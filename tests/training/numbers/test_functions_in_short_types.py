"""Each function has the gradient that it has in PyTorch, computed in a short type in an arena."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.training.autograd import exported
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.forward.precision import MixedPrecision
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.recipe import Recipe

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: getattr(F, name) for name in ("celu", "elu", "gelu", "hardsigmoid", "hardswish")},
    **{name: getattr(F, name) for name in ("logsigmoid", "mish", "relu6", "selu", "silu")},
    **{name: getattr(F, name) for name in ("softplus", "softsign", "tanhshrink")},
    **{name: getattr(torch, name) for name in ("atan", "cos", "exp", "sigmoid", "sin", "tanh")},
    "clamp": lambda x: torch.clamp(x, -0.5, 0.5),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": lambda x: F.glu(torch.cat([x, x * 0.5], 1), 1),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "minimum": lambda x: torch.minimum(x, x * 0.3) / 2.5,
    "prelu": lambda x: F.prelu(x, torch.tensor([0.25], dtype=x.dtype)),
    "the largest of its row": lambda x: x + x.gather(1, x.argmax(1, keepdim=True)),
    "used twice": lambda x: torch.tanh(x) + x,
    "masked": lambda x: (
        (x @ x.T).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf")).softmax(-1)
    ),
}

LEAST_GRADIENT = 0.01
"""Smaller ones are differences of larger terms, which PyTorch has not right in short types either."""

ROUNDINGS = 2
"""How much larger than PyTorch's own error in the short type ours may be, where that is large, as of
tanhshrink in bfloat16, x - tanh(x): the order of the roundings differs."""


class Functions(nn.Module):
    """Every function of products, which are short, times weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterDict(
            {name.replace(" ", "_"): 0.5 * torch.randn(6) for name in FUNCTIONS}
        )
        self.register_buffer("factor", torch.randn(5, 6))

    def forward(self, x: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        made = x.to(dtype) @ self.factor.to(dtype)
        weights = [self.weights[name.replace(" ", "_")].to(dtype) for name in FUNCTIONS]
        pairs = zip(FUNCTIONS.values(), weights, strict=True)
        return torch.cat([function(made * weight).float() for function, weight in pairs], 1)


def gradients(
    module: Functions, x: torch.Tensor, target: torch.Tensor, dtype: torch.dtype
) -> dict[str, np.ndarray]:
    """PyTorch's own gradients, computed in a type."""
    loss = F.mse_loss(module(x, dtype), target)
    made = torch.autograd.grad(loss, list(module.weights.values()))
    return {name: one.numpy() for name, one in zip(module.weights, made, strict=True)}


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), LEAST_GRADIENT))


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "most"), [("float16", 0.01), ("bfloat16", 0.06)])
def test_gradients_are_those_of_pytorch(dtype: str, most: float) -> None:
    torch.manual_seed(0)
    module, x = Functions(), torch.randn(6, 5)
    target = torch.randn(module(x).shape)
    wanted = gradients(module, x, target, torch.float32)
    of_pytorch = gradients(module, x, target, getattr(torch, dtype))

    recipe = Recipe(loss=MEAN_SQUARED_ERROR, precision=MixedPrecision(dtype))
    training = build_step_by_recipe(exported(module, x), recipe)
    platform = Platform((Device("cpu", "llvm -mcpu=native -opt-level=0", kernels=("tir",)),))
    lowered = lower_step(training.mod, platform)
    costs = {kernel.symbol: OpCost(1.0) for kernel in lowered.kernels.values()}
    problem = make_problem(lowered, lambda _: costs)
    executable = build_step(lowered, plan_keep_all(problem, "cpu"))
    executable.write(training.initial_state)
    batch = dict(zip(training.batch_names, (x.numpy(), target.numpy()), strict=True))
    executable.step({**batch, "lr": np.float32(0)})

    state = executable.read_state()
    beyond = {}
    for name, exact in wanted.items():
        error = relative_error(state[f"weights_{name}_velocity"], exact)
        if not error < max(most, ROUNDINGS * relative_error(of_pytorch[name], exact)):
            beyond[name] = error
    assert beyond == {}
