"""Mixed precision computes nearly the same gradients, with float32 parameters."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.frontends.torch.networks import LeNet
from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.forward.precision import MixedPrecision
from tvm_xengine.training.recipe import Recipe


class Block(nn.Module):
    """A transformer block that classifies, after a convolution with stride and groups."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(4, 16, 4, stride=4, groups=2)
        self.norm, self.last = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.classes = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        heads = self.qkv(self.norm(x)).reshape(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        x = x + self.down(nn.functional.gelu(self.up(self.last(x))))
        return self.classes(x.mean(1))


def _gradients(module: nn.Module, x: torch.Tensor, labels: torch.Tensor, dtype: str | None):
    """PyTorch's gradients, by autocast where a short type is asked for."""
    module.zero_grad()
    short = torch.float32 if dtype is None else getattr(torch, dtype)
    with torch.autocast("cpu", dtype=short, enabled=dtype is not None):
        loss = nn.functional.cross_entropy(module(x), labels)
    scale = 1.0 if dtype is None else 128.0
    (loss * scale).backward()
    return loss.item(), {
        identifier(name): parameter.grad.numpy() / scale
        for name, parameter in module.named_parameters()
    }


def _distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.slow
@pytest.mark.parametrize("network", ["lenet", "block"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_are_as_close_to_float32_as_those_of_autocast(dtype: str, network: str) -> None:
    torch.manual_seed(0)
    module, x = {
        "lenet": lambda: (LeNet(size=16), torch.randn(4, 1, 16, 16)),
        "block": lambda: (Block(), torch.randn(4, 4, 16, 16)),
    }[network]()
    labels = torch.randint(0, 10, (4,))
    recipe = Recipe(precision=MixedPrecision(dtype, loss_scale=128.0))
    step = build_step_by_recipe(exported(module, x), recipe)
    assert {str(value.dtype) for value in step.initial_state.values()} == {"float32"}
    run = ReferenceRun(step)
    loss = run(x.numpy(), labels.numpy())["loss"]
    exact_loss, exact = _gradients(module, x, labels, None)
    _, autocast = _gradients(module, x, labels, dtype)
    digits = 1e-2 if dtype == "float16" else 2e-2
    assert loss == pytest.approx(exact_loss, rel=digits)
    rows = {
        name: (_distance(found, exact[name]), _distance(autocast[name], exact[name]))
        for name, found in run.gradients().items()
    }
    assert max(ours for ours, _ in rows.values()) > 0
    assert not {name: row for name, row in rows.items() if row[0] > 1.5 * row[1] + digits}
