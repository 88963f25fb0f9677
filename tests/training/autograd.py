"""Comparing a training step with PyTorch's autograd."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from tests.training.running import ReferenceRun
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.training.build import build_training_step


class Operator(nn.Module):
    """A function of an input times a parameter, as a row."""

    def __init__(
        self, function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x * self.weight).flatten().reshape(1, -1)


def exported(module: nn.Module, *inputs: torch.Tensor) -> ForwardModel:
    """The forward model of a module, through torch.export."""
    return from_torch_export(torch.export.export(module, inputs))


def worst_gradient_error(
    model: ForwardModel, module: nn.Module, x: torch.Tensor, labels: torch.Tensor
) -> float:
    """Largest error of loss and gradients, relative to the tensor's largest gradient.

    A bias in front of a batch norm has a gradient of rounding errors only, so a tensor's largest
    gradient counts as at least a millionth of the largest of all.
    """
    run = ReferenceRun(build_training_step(model))
    loss = run(x.numpy(), labels.numpy())["loss"]
    expected = nn.functional.cross_entropy(module(x), labels)
    expected.backward()
    found = run.gradients()
    wanted = {
        identifier(name): parameter.grad.numpy()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    if set(found) != set(wanted):
        raise AssertionError(f"gradients differ in {sorted(set(found) ^ set(wanted))}")
    floor = 1e-6 * max(np.abs(gradient).max() for gradient in wanted.values())
    errors = [
        np.abs(found[name] - gradient).max() / max(np.abs(gradient).max(), floor)
        for name, gradient in wanted.items()
    ]
    return max(abs(loss - expected.item()) / abs(expected.item()), *errors)
