"""What predictions are judged by is PyTorch's, for every loss that is more than a function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import tvm_xengine as xe
from tests.shares import share
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError

torch.manual_seed(0)
IMAGES, NUMBERS, CLASSES = torch.randn(6, 4), torch.randn(6, 3), torch.arange(6) % 3
LOSSES: dict[str, tuple[Any, Any, torch.Tensor]] = {
    "huber": ("huber", functional.huber_loss, NUMBERS),
    "smooth_l1(beta=0.3)": (
        xe.named_loss("smooth_l1", beta=0.3),
        nn.SmoothL1Loss(beta=0.3),
        NUMBERS,
    ),
    "poisson_nll": ("poisson_nll", functional.poisson_nll_loss, NUMBERS.abs()),
    "a module of PyTorch": (nn.HuberLoss(delta=0.4), nn.HuberLoss(delta=0.4), NUMBERS),
}


@pytest.mark.parametrize("is_program", share([False, True], [True]))
@pytest.mark.parametrize("name", share(LOSSES, ["huber", "a module of PyTorch"]))
def test_a_loss_with_a_name_judges_predictions(name: str, is_program: bool) -> None:
    loss, theirs, targets = LOSSES[name]
    module = nn.Linear(4, 3)
    expected = float(theirs(module(IMAGES), targets).detach())
    model = torch.export.export(module.train(), (IMAGES,)) if is_program else module
    training = xe.training_step(model, None if is_program else IMAGES, loss=loss)
    lowered = xe.lower(training)
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), time_limit_s=5)
    found = xe.evaluate(xe.build(lowered, plan), [(IMAGES, targets)])
    assert found["loss"] == pytest.approx(expected, rel=1e-6)


class OwnLoss(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.layer(x), y)


def test_a_program_that_returns_its_loss_is_judged_by_whole_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = OwnLoss()
    program = torch.export.export(module.train(), (IMAGES[:2], CLASSES[:2]))
    training = xe.training_step(program)
    lowered = xe.lower(training)
    step = xe.build(lowered, xe.plan(xe.make_problem(lowered, costs="roofline"), time_limit_s=5))
    arrays = {"x": IMAGES[:5].numpy(), "y": CLASSES[:5].numpy()}
    found = xe.evaluate(step, Data(arrays, arrays, "five samples"))
    assert found["loss"] == pytest.approx(float(module(IMAGES[:4], CLASSES[:4]).detach()), rel=1e-6)
    assert "the last 1 samples are not evaluated" in caplog.text
    few = {name: array[:1] for name, array in arrays.items()}
    with pytest.raises(InvalidDataError, match="the loss of a batch of 2, and there are 1"):
        xe.evaluate(step, Data(arrays, few, "one sample"))


def test_dice_judges_predictions_as_its_kernel() -> None:
    module = nn.Conv1d(2, 3, 1)
    images, labels = torch.randn(4, 2, 5), torch.randint(0, 3, (4, 5))
    training = xe.training_step(module, images, loss="dice")
    lowered = xe.lower(training)
    step = xe.build(lowered, xe.plan(xe.make_problem(lowered, costs="roofline"), time_limit_s=5))
    found = xe.evaluate(step, [(images, labels)])
    assert found["loss"] == pytest.approx(float(np.asarray(step(images, labels))), rel=1e-5)


def test_classes_in_the_last_axis_are_judged_there() -> None:
    module = nn.Embedding(7, 5)
    tokens, labels = torch.randint(0, 7, (4, 3)), torch.randint(0, 5, (4, 3))
    loss = xe.named_loss("cross_entropy", axis=-1)
    lowered = xe.lower(xe.training_step(module, tokens, loss=loss))
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), time_limit_s=5)
    found = xe.evaluate(xe.build(lowered, plan), [(tokens, labels)])
    scores = module(tokens).detach()
    expected = functional.cross_entropy(scores.transpose(1, 2), labels)
    assert found["loss"] == pytest.approx(float(expected), rel=1e-6)
    assert found["accuracy"] == pytest.approx(float((scores.argmax(-1) == labels).float().mean()))
