"""Steps of each trap are those of PyTorch, or it is refused with advice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import tvm_xengine as xe
from tests.shares import share
from tests.traps.numbers import LOSSES, NUMBERS, ROWS, OfWeight
from tests.traps.state import STATE
from tests.traps.training import differences

TRAPS = {**STATE, **NUMBERS, **LOSSES}

FAST = (
    "an unused parameter",
    "transposed tying",
    "divisions of negative numbers",
    "NaN in the branch not taken",
)


@pytest.mark.parametrize("name", share(TRAPS, FAST))
def test_steps_of_a_trap_are_those_of_pytorch(name: str) -> None:
    assert not differences(TRAPS[name])


def _of_values(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return w * x if x.sum() > 0 else w - x


def _as_number(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return w * x * float(x.abs().max())


def _of_lengths(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return w * x + x[x > 0].mean()


def _in_complex_numbers(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.fft.fft(w * x).abs()


def _through_data(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return w * x + w.data


def _written_weight(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        w.clamp_(-1, 1)
    return w * x


def _written_without_gradients(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w * x
    with torch.no_grad():
        y[0].clamp_(min=0)
    return y * w


def _written_through_detach(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w * x
    y.detach().mul_(2.0)
    return y * w


class CumulativeNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, momentum=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a branch that depends on values": (lambda: OfWeight(_of_values), "value of a tensor"),
    "a value as a number": (lambda: OfWeight(_as_number), "value of a tensor"),
    "a shape that depends on values": (lambda: OfWeight(_of_lengths), "torch.where"),
    "complex numbers": (lambda: OfWeight(_in_complex_numbers), "complex"),
    "a weight read through .data": (lambda: OfWeight(_through_data), "detach"),
    "a weight that forward writes": (lambda: OfWeight(_written_weight), "writes the parameters"),
    "a write under no_grad": (lambda: OfWeight(_written_without_gradients), "clamp_.*clone"),
    "a write through detach()": (lambda: OfWeight(_written_through_detach), "mul_.*clone"),
    "statistics over all batches": (CumulativeNorm, "momentum=None"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_step_cannot_mean_is_refused_with_advice(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(xe.XEngineError, match=message):
        xe.training_step(make(), ROWS, loss="mse")


def test_a_loss_that_ignores_its_labels_is_refused() -> None:
    with pytest.raises(xe.XEngineError, match=r"does not depend on .*targets"):
        xe.training_step(OfWeight(torch.mul), ROWS, loss=lambda y, _labels: (y**2).sum())


class Hooked(nn.Module):
    """A layer whose gradients something else changes, as `where` says."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.layer, self.where = nn.Linear(4, 4), where
        if where == "parameter":
            self.layer.weight.register_hook(lambda gradient: gradient * 2)
        elif where == "accumulated":
            self.layer.weight.register_post_accumulate_grad_hook(lambda p: p.grad.zero_())
        elif where == "module":
            self.layer.register_full_backward_hook(lambda _module, given, _made: given)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if self.where == "tensor":
            y.register_hook(lambda gradient: gradient * 3)
        return y


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("parameter", "gradient of layer.weight are lost"),
        ("accumulated", "gradient of layer.weight are lost"),
        ("module", "gradient of layer are lost"),
        ("tensor", "forward registers on tensors are lost"),
    ],
)
def test_hooks_on_gradients_that_the_export_loses_are_told(where: str, named: str) -> None:
    notes = xe.training_step(Hooked(where), ROWS, loss="mse").notes
    assert len([note for note in notes if named in note]) == len(notes) == 1


def test_a_batch_that_forward_writes_is_told_and_left_as_it_is() -> None:
    """Also where the shape of the targets follows from a call with the example."""
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3), nn.ReLU(inplace=True))
    before = ROWS.clone()
    training = xe.training_step(module, ROWS, loss=functional.mse_loss)
    assert torch.equal(ROWS, before)
    (note,) = training.notes
    assert "forward writes in place to input" in note


def test_a_module_that_cannot_be_copied_is_tried_with_a_loss() -> None:
    """A weight that a hook computes is no leaf, which PyTorch refuses to copy."""
    module = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)), nn.BatchNorm1d(3))
    module(ROWS)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    training = xe.training_step(module, ROWS, loss=lambda y, t: ((y - t) ** 2).mean())
    assert {role.name for role in training.roles if role.is_parameter} >= {
        "0.weight_g",
        "0.weight_v",
    }
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_module_that_does_not_take_its_example_is_refused() -> None:
    with pytest.raises(xe.XEngineError, match=r"Linear cannot be called with .*: .*mat1 and mat2"):
        xe.training_step(nn.Linear(5, 3), ROWS, loss=lambda y, t: ((y - t) ** 2).mean())


class Counts(nn.Module):
    """Forward changes a number and a flag, which an exported program does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 4), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.layer.bias.requires_grad_(False)
        return self.layer(x) * self.calls


def test_what_forward_changes_outside_of_buffers_is_told_and_undone() -> None:
    module = Counts()
    notes = xe.training_step(module, ROWS, loss="mse").notes
    assert [note.split(",")[0] for note in notes] == [
        "forward changes calls",
        "forward changes layer.bias.requires_grad",
    ]
    assert module.calls == 0
    assert module.layer.bias.requires_grad
