"""No gradient is computed that nobody uses, whatever is frozen."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep


class Adapted(nn.Linear):
    """A linear layer with a low-rank correction (Hu et al. 2021)."""

    def __init__(self, inner: int, outer: int, rank: int = 2) -> None:
        super().__init__(inner, outer)
        self.down = nn.Parameter(torch.randn(rank, inner))
        self.up = nn.Parameter(torch.randn(outer, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x @ self.down.T @ self.up.T


class Network(nn.Module):
    """Convolution, norms of several kinds, an adapted layer, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.conv_norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.second, self.group = nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4)
        self.rows, self.adapted = nn.LayerNorm(4), Adapted(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv_norm(self.conv(x)))
        x = torch.relu(self.group(self.second(x))).mean((2, 3))
        return self.head(torch.tanh(self.adapted(self.rows(x))))


# Names of trained parameters, and how many tensors the backward pass makes.
CHOICES = {
    "the last layer": (["head.weight", "head.bias"], 3),
    "an adapter": (["adapted.down", "adapted.up"], 6),
    "norms": (["conv_norm.weight", "group.bias", "rows.weight"], 17),
    "the first layer": (["conv.weight"], 14),
    "all but the first layers": (
        ["rows.weight", "rows.bias", "adapted.weight", "adapted.bias", "head.weight", "head.bias"],
        14,
    ),
}


def _backward_bindings(step: TrainingStep) -> list[str]:
    """Bindings after the loss that are not updates."""
    names = [binding.var.name for binding in step.function.body.blocks[0].bindings]
    after = names[names.index("loss_backward") :]
    return [name for name in after if not name.endswith("_update") and "_new" not in name]


def _network(mode: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Network().train(mode == "train"), torch.randn(2, 3, 7, 7)


def _step(module: nn.Module, x: torch.Tensor, choice: str) -> TrainingStep:
    names = [identifier(name) for name in CHOICES[choice][0]]
    return build_step_by_recipe(exported(module, x), Recipe(), trainable=names)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("choice", CHOICES)
def test_only_what_is_trained_gets_a_gradient(choice: str, mode: str) -> None:
    trained, count = CHOICES[choice]
    module, x = _network(mode)
    bound = _backward_bindings(_step(module, x, choice))
    assert len([name for name in bound if name != "step_results"]) == count, bound
    frozen = {name for name, _ in module.named_parameters()} - set(trained)
    gradients = {f"{identifier(name)}_grad" for name in frozen}
    assert not gradients & set(bound)


@pytest.mark.parametrize(("choice", "mode"), [("norms", "eval"), ("an adapter", "train")])
def test_gradients_beside_frozen_parameters_are_those_of_autograd(choice: str, mode: str) -> None:
    module, x = _network(mode)
    labels = torch.randint(0, 3, (2,))
    run = ReferenceRun(_step(module, x, choice))
    run(x.numpy(), labels.numpy())
    nn.functional.cross_entropy(module(x), labels).backward()
    wanted = {identifier(name): p.grad.numpy() for name, p in module.named_parameters()}
    found = run.gradients()
    assert set(found) == {identifier(name) for name in CHOICES[choice][0]}
    for name, gradient in found.items():
        scale = np.abs(wanted[name]).max()
        np.testing.assert_allclose(gradient, wanted[name], atol=2e-5 * scale, err_msg=name)
