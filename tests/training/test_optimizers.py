"""Training steps move parameters as PyTorch's optimizers do."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.emitter import INPLACE_ATTR
from tvm_xengine.training.optimizers import SGD, Adam, Optimizer
from tvm_xengine.training.recipe import Recipe

Reference = Callable[..., torch.optim.Optimizer]

CASES: dict[str, tuple[Optimizer, Reference]] = {
    "plain": (SGD(weight_decay=0.1), lambda p, lr: torch.optim.SGD(p, lr, weight_decay=0.1)),
    "momentum": (SGD(momentum=0.9), lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9)),
    "nesterov": (
        SGD(momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "adam": (
        Adam(weight_decay=0.1),
        lambda p, lr: torch.optim.Adam(p, lr, weight_decay=0.1),
    ),
    "adamw": (
        Adam(weight_decay=0.1, decoupled=True),
        lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0.1),
    ),
}


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.second = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def _assert_same_parameters(run: ReferenceRun, module: nn.Module, tolerance: float) -> None:
    for name, parameter in module.named_parameters():
        found = run.state[name.replace(".", "_")]
        np.testing.assert_allclose(
            found, parameter.detach().numpy(), rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_five_steps_agree_with_pytorch(name: str, max_norm: float | None) -> None:
    torch.manual_seed(0)
    optimizer, reference = CASES[name]
    module = TwoLayers()
    x, labels = torch.randn(5, 4, 6), torch.randint(0, 3, (5, 4))
    recipe = Recipe(optimizer=optimizer, max_gradient_norm=max_norm)
    run = ReferenceRun(build_step_by_recipe(exported(module, x[0]), recipe))
    theirs = reference(module.parameters(), lr=0.05)
    for images, classes in zip(x, labels, strict=True):
        run(images.numpy(), classes.numpy(), lr=0.05)
        theirs.zero_grad()
        nn.functional.cross_entropy(module(images), classes).backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        theirs.step()
    _assert_same_parameters(run, module, 1e-5)


def test_micro_batches_average_their_gradients() -> None:
    torch.manual_seed(0)
    module = TwoLayers()
    x, labels = torch.randn(6, 6), torch.randint(0, 3, (6,))
    recipe = Recipe(optimizer=SGD(), micro_batches=3)
    run = ReferenceRun(build_step_by_recipe(exported(module, x[:2]), recipe))
    loss = run(x.numpy(), labels.numpy(), lr=0.5)["loss"]
    expected = nn.functional.cross_entropy(module(x), labels)
    expected.backward()
    torch.optim.SGD(module.parameters(), 0.5).step()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    _assert_same_parameters(run, module, 1e-5)


def test_only_named_parameters_are_trained_and_nothing_else_is_computed() -> None:
    model = exported(TwoLayers(), torch.randn(4, 6))
    step = build_step_by_recipe(model, Recipe(), trainable=["second_weight", "second_bias"])
    assert [name for name, role in step.roles.items() if role == "constant"] == [
        "first_weight",
        "first_bias",
    ]
    bound = [binding.var.name for binding in step.function.body.blocks[0].bindings]
    assert not [name for name in bound if name.startswith("first") and "grad" in name]
    assert not [name for name in bound if name.startswith("tanh_backward")]


def test_updates_may_be_written_over_what_they_replace() -> None:
    step = build_step_by_recipe(exported(TwoLayers(), torch.randn(4, 6)), Recipe(optimizer=Adam()))
    marks = {
        var.name_hint: [int(position) for position in func.attrs[INPLACE_ATTR]]
        for var, func in step.mod.functions.items()
        if func.attrs is not None and INPLACE_ATTR in func.attrs
    }
    assert marks["adam_update"] == [0, 0, 1, 1, 2, 2]
    assert marks["advance_step"] == [0, 0]
