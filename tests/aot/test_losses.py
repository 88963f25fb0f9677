"""Losses and types of labels: exported C trains as PyTorch does."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import tvm_xengine as xe
from tests.aot.examples import export, need_tools, tiny_mlp
from tests.aot.state.test_checkpoint import CheckpointSession
from tests.aot.test_package import SANITIZED, Session
from tests.training.test_optimizers import ReferenceLion
from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.export import ExportReport, export_step
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.commands.arguments.names import LABEL_TYPES
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.model.losses import LOSS_NAMES
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR, CrossEntropy, Dice
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.typed_labels import TYPES, TypedLabels

Judge = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ERANGE = -9


def dice(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The soft Dice loss of Milletari et al. (2016), over classes."""
    p, t = logits.softmax(1), functional.one_hot(labels, logits.shape[1]).float()
    return 1 - ((2 * (p * t).sum(0) + 1) / (p.sum(0) + t.sum(0) + 1)).mean()


JUDGES: dict[str, Judge] = {
    "bce": lambda x, t: functional.binary_cross_entropy(x.sigmoid(), t),
    "bce_with_logits": functional.binary_cross_entropy_with_logits,
    "cross_entropy": functional.cross_entropy,
    "dice": dice,
    "huber": functional.huber_loss,
    "kl_div": lambda x, t: (t * (t.log() - x)).mean(),  # PyTorch warns of its own default
    "l1": functional.l1_loss,
    "mse": functional.mse_loss,
    "multi_margin": functional.multi_margin_loss,
    "multilabel_soft_margin": functional.multilabel_soft_margin_loss,
    "nll": functional.nll_loss,
    "poisson_nll": functional.poisson_nll_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "soft_margin": functional.soft_margin_loss,
}
"""Each loss that the library has by name, in PyTorch."""
OVER_CLASSES = ("cross_entropy", "dice", "multi_margin", "nll")


def network(*, is_probability: bool = False) -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)]
    return torch.nn.Sequential(*layers, *([torch.nn.Sigmoid()] if is_probability else []))


def targets_for(loss: str, random: np.random.Generator) -> np.ndarray:
    if loss in OVER_CLASSES:
        return random.integers(0, 3, 4)
    drawn = random.uniform(0.1, 0.9, (4, 3)).astype(np.float32)
    if loss == "soft_margin":
        return np.where(drawn > 0.5, 1, -1).astype(np.float32)
    return drawn


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_exported_training_by_lion_is_that_of_pytorch_under_every_loss(
    loss: str, tmp_path: Path
) -> None:
    need_tools("host")
    is_probability = loss == "bce"
    training = xe.training_step(
        network(is_probability=is_probability),
        torch.zeros(4, 6),
        loss=loss,
        optimizer=xe.Lion(0.01, weight_decay=0.1),
    )
    options = ExportOptions("host", parse_regions("sram=64KiB"), learning_rate=0.01)
    report = export_step(training.source.training, training.step, options, tmp_path / "out")
    session = CheckpointSession(report, tmp_path)
    assert session.init() == session.call("state_reset") == 0
    module = network()
    optimizer = ReferenceLion(module.parameters(), 0.01, weight_decay=0.1)
    random = np.random.default_rng(0)
    for _ in range(5):
        x, targets = random.normal(size=(4, 6)).astype(np.float32), targets_for(loss, random)
        results = [np.zeros(1, np.float32) for _ in report.leading.program.interface.results]
        assert session.call("train_step", x, targets, *results) == 0
        optimizer.zero_grad()
        expected = JUDGES[loss](module(torch.tensor(x)), torch.tensor(targets))
        expected.backward()
        optimizer.step()
        assert results[0][0] == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)


def typed(folder: Path, dtype: str, loss: CrossEntropy | Dice) -> ExportReport:
    recipe = Recipe(loss=TypedLabels(loss, dtype))
    return export(tiny_mlp(), folder, recipe=recipe)


def test_options_offer_the_types_of_labels() -> None:
    assert LABEL_TYPES == TYPES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "loss"),
    [
        ("uint8", CrossEntropy()),
        *(
            (dtype, loss)
            for dtype in TYPES
            for loss in (CrossEntropy(label_smoothing=0.1), CrossEntropy(ignore_index=2), Dice())
        ),
    ],
    ids=str,
)
def test_short_labels_train_as_those_of_pytorch(
    dtype: str, loss: CrossEntropy | Dice, tmp_path: Path
) -> None:
    need_tools("host")
    report = typed(tmp_path / "out", dtype, loss)
    header = (report.directory / "tiny_mlp.h").read_text()
    assert f"labels: {dtype} [2]" in header
    assert f"const {dtype}_t *labels" in header
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", report.package.target).returncode == 0
    session = Session(report, tmp_path)
    assert session.init() == session.call("state_reset") == 0
    module = torch.nn.Sequential(torch.nn.Linear(16, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    model = tiny_mlp()
    for name, parameter in zip(model.parameters, module.parameters(), strict=True):
        parameter.data = torch.tensor(np.array(model.parameters[name]))
    judge: Judge = dice
    if isinstance(loss, CrossEntropy):
        judge = torch.nn.CrossEntropyLoss(
            ignore_index=loss.ignore_index, label_smoothing=loss.label_smoothing
        )
    optimizer = torch.optim.SGD(module.parameters(), 0.01, momentum=0.9)
    random = np.random.default_rng(0)
    for step in range(4):
        x = random.normal(size=(2, 16)).astype(np.float32)
        labels = np.array([3, step], dtype)
        found = np.zeros(1, np.float32)
        results = [None] * (len(report.leading.program.interface.results) - 1)
        assert session.call("train_step", x, labels, found, *results) == 0
        optimizer.zero_grad()
        expected = judge(module(torch.tensor(x)), torch.tensor(labels.astype(np.int64)))
        expected.backward()
        optimizer.step()
        assert found[0] == pytest.approx(expected.item(), rel=1e-4)
    for bad in (4, np.iinfo(dtype).max, np.iinfo(dtype).min):
        if not 0 <= bad < 4:
            labels = np.array([bad, 0], dtype)
            assert session.call("train_step", x, labels, found, *results) == ERANGE


def test_a_type_that_does_not_hold_all_classes_is_refused() -> None:
    begin = xe.training_step
    with pytest.raises(UnsupportedModelError, match="hold numbers to 127, the classes go to 199"):
        begin(torch.nn.Linear(6, 200), torch.zeros(4, 6), loss=TypedLabels(CrossEntropy(), "int8"))
    with pytest.raises(UnsupportedModelError, match="takes no class numbers"):
        begin(
            torch.nn.Linear(6, 2), torch.zeros(4, 6), loss=TypedLabels(MEAN_SQUARED_ERROR, "int8")
        )
