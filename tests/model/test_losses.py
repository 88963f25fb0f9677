"""Losses of a PyTorch module, compared with PyTorch: by name, as its modules, and as functions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import tvm_xengine as xe
from tests.conftest import Compile
from tests.shares import share
from tvm_xengine.errors import UnsupportedModelError

CLASSES, SAMPLES, RATE = 3, 6, 0.1
torch.manual_seed(0)
NUMBERS = torch.randn(SAMPLES, CLASSES)
LABELS = torch.randint(0, CLASSES, (SAMPLES,))
YES_OR_NO = torch.randint(0, 2, (SAMPLES, CLASSES)).float()

LOSSES: dict[str, tuple[Any, Callable[..., torch.Tensor], torch.Tensor]] = {
    "mse summed": (xe.named_loss("mse", reduction="sum"), nn.MSELoss(reduction="sum"), NUMBERS),
    "huber": (xe.named_loss("huber", delta=0.3), nn.HuberLoss(delta=0.3), NUMBERS),
    "smooth_l1": (nn.SmoothL1Loss(beta=0.4), nn.SmoothL1Loss(beta=0.4), NUMBERS),
    "bce_with_logits weighted": (
        xe.named_loss("bce_with_logits", pos_weight=torch.tensor([1.0, 2.0, 3.0])),
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0])),
        YES_OR_NO,
    ),
    "kl_div": (
        xe.named_loss("kl_div", reduction="batchmean"),
        nn.KLDivLoss(reduction="batchmean"),
        torch.softmax(NUMBERS, 1),
    ),
    "poisson_nll": (
        xe.named_loss("poisson_nll", full=True),
        nn.PoissonNLLLoss(full=True),
        3 * NUMBERS.abs(),
    ),
    "cross_entropy with options": (
        xe.named_loss(
            "cross_entropy", label_smoothing=0.2, ignore_index=1, weight=torch.tensor([1.0, 2, 0.5])
        ),
        nn.CrossEntropyLoss(torch.tensor([1.0, 2, 0.5]), ignore_index=1, label_smoothing=0.2),
        LABELS,
    ),
    "cross_entropy summed": (
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(reduction="sum"),
        LABELS,
    ),
    "nll": ("nll", nn.NLLLoss(), LABELS),
    "nll module": (nn.NLLLoss(), nn.NLLLoss(), LABELS),
    "multi_margin": (
        xe.named_loss("multi_margin", margin=0.7),
        nn.MultiMarginLoss(margin=0.7),
        LABELS,
    ),
}


FAST = ("huber", "bce_with_logits weighted", "cross_entropy with options", "nll module")


@pytest.mark.parametrize("name", share(LOSSES, FAST))
def test_a_named_loss_trains_a_module_without_examples_of_its_targets(
    compile_step: Compile, name: str
) -> None:
    torch.manual_seed(1)
    loss, reference, targets = LOSSES[name]
    module, inputs = nn.Linear(4, CLASSES), torch.randn(SAMPLES, 4)
    step = compile_step(module, inputs, loss=loss, optimizer=xe.SGD(RATE))
    expected = reference(module(inputs), targets)
    expected.backward()
    assert float(step(inputs, targets)) == pytest.approx(expected.item(), rel=1e-5)
    assert module.weight.grad is not None
    wanted = module.weight.detach() - RATE * module.weight.grad
    torch.testing.assert_close(step.state_dict()["weight"], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "weight": torch.rand(CLASSES)}])
def test_cross_entropy_takes_probabilities_where_examples_are(
    compile_step: Compile, options: dict[str, Any]
) -> None:
    loss, targets = nn.CrossEntropyLoss(**options), torch.softmax(NUMBERS, 1)
    module, inputs = nn.Linear(4, CLASSES), torch.randn(SAMPLES, 4)
    step = compile_step(module, inputs, loss=loss, example_targets=targets, optimizer=xe.SGD(RATE))
    assert float(step(inputs, targets)) == pytest.approx(loss(module(inputs), targets).item())


class Triplets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, CLASSES)

    def forward(self, *points: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(map(self.linear, points))


def test_a_loss_of_the_outputs_alone_needs_no_targets(compile_step: Compile) -> None:
    module, inputs = Triplets(), torch.randn(3, SAMPLES, 4).unbind()

    def loss(outputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return functional.triplet_margin_loss(*outputs)

    step = compile_step(module, inputs, loss=loss, optimizer=xe.SGD(RATE))
    assert float(step(*inputs)) == pytest.approx(loss(module(*inputs)).item())


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.linspace(-30, 15, CLASSES * SAMPLES).reshape(-1, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores + x


@pytest.mark.parametrize("options", [{}, {"pos_weight": torch.rand(CLASSES)}])
def test_scores_of_negatives_have_small_gradients_to_the_last_digit(
    compile_step: Compile, options: dict[str, Any]
) -> None:
    """Adam takes steps of its rate where all gradients are rounding errors."""
    loss, module = nn.BCEWithLogitsLoss(reduction="sum", **options), Scores()
    inputs = targets = torch.zeros(SAMPLES, CLASSES)
    step = compile_step(module, inputs, loss=loss, optimizer=xe.SGD(RATE, momentum=0.5))
    step(inputs, targets)
    loss(module(inputs), targets).backward()
    found = step.executable.read_state()["scores_velocity"]
    torch.testing.assert_close(torch.tensor(found), module.scores.grad, rtol=1e-5, atol=0)


def test_a_function_over_other_targets_is_refused_with_advice() -> None:
    with pytest.raises(xe.XEngineError, match=r"shape \(6, 3\), so give example_targets"):
        xe.training_step(
            nn.Linear(4, CLASSES),
            torch.randn(SAMPLES, 4),
            loss=lambda outputs, labels: functional.cross_entropy(outputs, labels.squeeze(5)),
        )


class TwoOutputs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        return x * 2, (x + 1, x.sum())


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", None])
def test_a_loss_by_name_of_several_outputs_says_what_to_do(loss: str | None) -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"returns 3 tensors, .* give a function, such as loss="
    ):
        xe.training_step(TwoOutputs(), torch.randn(4, 5), loss=loss)


class Tokens(nn.Module):  # type: ignore[misc]
    """Scores of five classes for each of three tokens, or their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Embedding(7, 5)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        scores = self.scores(tokens)
        return (
            scores
            if labels is None
            else functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
        )


def test_a_program_that_returns_a_scalar_minimises_it(tmp_path: Path) -> None:
    tokens, labels = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[0, 1, 2], [3, 4, 0]])
    module = Tokens()
    program = torch.export.export(module.train(), (tokens, labels))
    training = xe.training_step(program, optimizer=xe.SGD(0.5))
    assert training.loss_name == "what the model returns"
    np.savez(tmp_path / "data.npz", tokens=tokens.numpy(), labels=labels.numpy())
    data = xe.training_data(training, str(tmp_path / "data.npz"))
    lowered = xe.lower(training)
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), time_limit_s=5)
    step = xe.build(lowered, plan)
    expected = float(module(tokens, labels).detach())
    assert float(step.step(**data.train)) == pytest.approx(expected, rel=1e-6)


def test_labels_that_do_not_fit_say_which_axis_holds_the_classes(tmp_path: Path) -> None:
    tokens, labels = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[0, 1, 2], [3, 4, 0]])
    module = Tokens()
    program = torch.export.export(module.train(), (tokens,))
    np.savez(tmp_path / "data.npz", x=tokens.numpy(), y=labels.numpy())
    with pytest.raises(xe.XEngineError, match=r"takes axis 1 of the output \(2, 3, 5\)"):
        xe.training_data(
            xe.training_step(program, loss="cross_entropy"), str(tmp_path / "data.npz")
        )
    training = xe.training_step(program, loss=xe.named_loss("cross_entropy", axis=-1))
    lowered = xe.lower(training)
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), time_limit_s=5)
    step = xe.build(lowered, plan)
    data = xe.training_data(training, str(tmp_path / "data.npz"))
    expected = float(module(tokens, labels).detach())
    assert float(step.step(**data.train)) == pytest.approx(expected, rel=1e-6)


def test_a_module_that_returns_its_loss_alone_is_exported_once_in_each_mode(
    compile_step: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithLoss(nn.Linear):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(functional.dropout(super().forward(x), 0.0), labels)

    exported, export = list[bool](), torch.export.export

    def counted(module: nn.Module, *given: Any, **options: Any) -> Any:
        exported.append(module.training)
        return export(module, *given, **options)

    monkeypatch.setattr(torch.export, "export", counted)
    module, batch = WithLoss(4, 3), (torch.randn(5, 4), torch.arange(5) % 3)
    step = compile_step(module, batch, optimizer=xe.SGD(0.1))
    assert len(exported) == 2
    assert float(step(*batch)) == pytest.approx(module(*batch).item(), rel=1e-6)
