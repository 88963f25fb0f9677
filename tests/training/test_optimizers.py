"""Training steps move parameters as PyTorch's optimizers do."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from tvm import relax

from tests.shares import share
from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.adam import Adam, Adamax, AdamW, NAdam, RAdam
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.losses import (
    BINARY_CROSS_ENTROPY,
    MEAN_ABSOLUTE_ERROR,
    MEAN_SQUARED_ERROR,
    CrossEntropy,
    Dice,
    FunctionLoss,
    Loss,
)
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import SGD, Adadelta, Adagrad, Lion, RMSprop
from tvm_xengine.training.recipe import Recipe

Reference = Callable[..., torch.optim.Optimizer]
ReferenceLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class ReferenceLion(torch.optim.Optimizer):
    """Lion as in its paper (Chen et al. 2023, algorithm 2)."""

    def __init__(self, parameters, lr, betas=(0.9, 0.99), weight_decay=0.0) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - lr * group["weight_decay"])
                p.sub_(lr * torch.sign(beta1 * m + (1 - beta1) * p.grad))
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


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
    "dampened": (
        SGD(momentum=0.9, dampening=0.4, maximize=True),
        lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, dampening=0.4, maximize=True),
    ),
    "amsgrad": (
        Adam(amsgrad=True, betas=(0.5, 0.6)),
        lambda p, lr: torch.optim.Adam(p, lr, amsgrad=True, betas=(0.5, 0.6)),
    ),
    "rmsprop": (
        RMSprop(weight_decay=0.1),
        lambda p, lr: torch.optim.RMSprop(p, lr, weight_decay=0.1),
    ),
    "rmsprop momentum": (
        RMSprop(momentum=0.9, alpha=0.9),
        lambda p, lr: torch.optim.RMSprop(p, lr, momentum=0.9, alpha=0.9),
    ),
    "rmsprop centered": (
        RMSprop(centered=True, eps=1e-3),
        lambda p, lr: torch.optim.RMSprop(p, lr, centered=True, eps=1e-3),
    ),
    "rmsprop centered momentum": (
        RMSprop(centered=True, momentum=0.5, eps=1e-3),
        lambda p, lr: torch.optim.RMSprop(p, lr, centered=True, momentum=0.5, eps=1e-3),
    ),
    "adagrad": (
        Adagrad(lr_decay=0.1, initial_accumulator_value=0.5, weight_decay=0.01),
        lambda p, lr: torch.optim.Adagrad(
            p, lr, lr_decay=0.1, initial_accumulator_value=0.5, weight_decay=0.01
        ),
    ),
    "nadam": (
        NAdam(weight_decay=0.1, momentum_decay=0.3),
        lambda p, lr: torch.optim.NAdam(p, lr, weight_decay=0.1, momentum_decay=0.3),
    ),
    "radam": (
        RAdam(weight_decay=0.1, decoupled_weight_decay=True, betas=(0.8, 0.9)),
        lambda p, lr: torch.optim.RAdam(
            p, lr, (0.8, 0.9), weight_decay=0.1, decoupled_weight_decay=True
        ),
    ),
    "adamax": (
        Adamax(weight_decay=0.1, maximize=True),
        lambda p, lr: torch.optim.Adamax(p, lr, weight_decay=0.1, maximize=True),
    ),
    "adadelta": (
        Adadelta(rho=0.7, weight_decay=0.1),
        lambda p, lr: torch.optim.Adadelta(p, lr, rho=0.7, weight_decay=0.1),
    ),
    "adadelta of one gradient": (
        Adadelta(rho=0.0, eps=1e-3, maximize=True),
        lambda p, lr: torch.optim.Adadelta(p, lr, rho=0.0, eps=1e-3, maximize=True),
    ),
    "lion": (
        Lion(weight_decay=0.1),
        lambda p, lr: ReferenceLion(p, lr, weight_decay=0.1),
    ),
    "adamw": (
        AdamW(weight_decay=0.1),
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


def _assert_five_equal_steps(
    optimizer: str,
    *,
    loss: Loss | None = None,
    reference_loss: ReferenceLoss = nn.functional.cross_entropy,
    max_norm: float | None = None,
    micro_batches: int = 1,
) -> None:
    torch.manual_seed(0)
    ours, reference = CASES[optimizer]
    module = TwoLayers()
    size = 4 * micro_batches
    x, classes = torch.randn(5, size, 6), torch.randint(0, 3, (5, size))
    classes[:, ::4] = 0  # a loss over ignored labels alone is not a number, in PyTorch neither
    recipe = Recipe(
        loss=loss or CrossEntropy(),
        optimizer=ours,
        max_gradient_norm=max_norm,
        micro_batches=micro_batches,
    )
    run = ReferenceRun(build_step_by_recipe(exported(module, x[0, :4]), recipe))
    theirs = reference(module.parameters(), lr=0.05)
    for images, labels in zip(x, classes, strict=True):
        labels = _as_targets(labels, run)
        found = run(images.numpy(), labels.numpy(), lr=0.05)["loss"]
        theirs.zero_grad()
        expected = 0.0
        for part, target in zip(images.split(4), labels.split(4), strict=True):
            part_loss = reference_loss(module(part), target) / micro_batches
            part_loss.backward()
            expected += part_loss.item()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        theirs.step()
        assert found == pytest.approx(expected, rel=1e-5)
    _assert_same_parameters(run, module, 1e-5)


def _as_targets(classes: torch.Tensor, run: ReferenceRun) -> torch.Tensor:
    """Classes, or the targets that a loss over real numbers wants."""
    dtype = str(run.step.function.params[1].ty.dtype)
    return nn.functional.one_hot(classes, 3).float() if "float" in dtype else classes


@pytest.mark.parametrize("name", CASES)
def test_five_steps_agree_with_pytorch(name: str) -> None:
    _assert_five_equal_steps(name)


CLIPPED = ("momentum", "amsgrad", "lion")
"""Clipping and summing come before the optimizer, which sees one gradient."""


@pytest.mark.parametrize(
    "name",
    share(CASES, CLIPPED),
)
def test_five_steps_with_clipped_summed_gradients_agree_with_pytorch(name: str) -> None:
    _assert_five_equal_steps(name, max_norm=0.3, micro_batches=2)


def _dice(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    probabilities, target = logits.softmax(1), nn.functional.one_hot(labels, 3).float()
    above = 2 * (probabilities * target).sum(0) + 1
    return 1 - (above / ((probabilities + target).sum(0) + 1)).mean()


def _written_in_relax() -> Loss:
    """Cross-entropy of given probabilities."""
    builder = relax.BlockBuilder()
    x, t = (relax.Var(name, relax.TensorType((4, 3), "float32")) for name in "xt")
    with builder.function("loss", params=[x, t]):
        with builder.dataflow():
            logs = relax.op.nn.log_softmax(x, 1)
            output = builder.emit_output(relax.op.nn.cross_entropy_with_logits(logs, t))
        builder.emit_func_output(output)
    return FunctionLoss(builder.get()["loss"])


LOSSES: dict[str, tuple[Loss, ReferenceLoss]] = {
    "weighted and smoothed": (
        CrossEntropy(class_weights=(1.0, 2.0, 0.5), label_smoothing=0.1, ignore_index=2),
        lambda x, t: nn.functional.cross_entropy(
            x, t, torch.tensor([1.0, 2.0, 0.5]), ignore_index=2, label_smoothing=0.1
        ),
    ),
    "binary": (BINARY_CROSS_ENTROPY, nn.functional.binary_cross_entropy_with_logits),
    "mse": (MEAN_SQUARED_ERROR, nn.functional.mse_loss),
    "l1": (MEAN_ABSOLUTE_ERROR, nn.functional.l1_loss),
    "dice": (Dice(), _dice),
    "a Relax function": (
        _written_in_relax(),
        lambda x, t: -(x.log_softmax(1) * t).sum() / len(t),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("loss", LOSSES)
def test_five_steps_of_every_loss_agree_with_pytorch(name: str, loss: str) -> None:
    ours, theirs = LOSSES[loss]
    _assert_five_equal_steps(name, loss=ours, reference_loss=theirs, max_norm=0.3)


def test_only_named_parameters_are_trained_and_nothing_else_is_computed() -> None:
    model = exported(TwoLayers(), torch.randn(4, 6))
    step = build_step_by_recipe(model, Recipe(), trainable=["second_weight", "second_bias"])
    assert [name for name, role in step.roles.items() if role is Role.CONSTANT] == [
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
