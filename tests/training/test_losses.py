"""Losses and their gradients are those of PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tvm import relax

from tests.training.running import ReferenceRun
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.relax import from_relax
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
from tvm_xengine.training.recipe import Recipe

LOGITS = np.random.default_rng(0).standard_normal((4, 3, 2)).astype("float32")
CLASSES = np.array([[0, 2], [1, 1], [2, 0], [0, 0]])
TARGETS = np.random.default_rng(1).uniform(0, 1, (4, 3, 2)).astype("float32")


def _dice(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    probabilities = logits.softmax(1)
    target = F.one_hot(labels, 3).movedim(-1, 1).float()
    axes = (0, 2)
    overlap, mass = (probabilities * target).sum(axes), (probabilities + target).sum(axes)
    return 1 - ((2 * overlap + 1) / (mass + 1)).mean()


def _written_in_relax() -> Loss:
    """mean(|x - t|^3)."""
    builder = relax.BlockBuilder()
    x, t = (relax.Var(name, relax.TensorType(LOGITS.shape, "float32")) for name in "xt")
    with builder.function("loss", params=[x, t]):
        with builder.dataflow():
            distance = relax.op.abs(relax.op.subtract(x, t))
            cubed = relax.op.power(distance, relax.const(3.0, "float32"))
            output = builder.emit_output(relax.op.mean(cubed))
        builder.emit_func_output(output)
    return FunctionLoss(builder.get()["loss"])


CASES = {
    "cross-entropy": (CrossEntropy(), F.cross_entropy, CLASSES),
    "label smoothing": (
        CrossEntropy(label_smoothing=0.1),
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        CLASSES,
    ),
    "ignored labels": (
        CrossEntropy(ignore_index=1, label_smoothing=0.2),
        lambda x, t: F.cross_entropy(x, t, ignore_index=1, label_smoothing=0.2),
        CLASSES,
    ),
    "classes on the last axis": (
        CrossEntropy(axis=-1),
        lambda x, t: F.cross_entropy(x.movedim(-1, 1), t),
        CLASSES[:, [0, 0, 1]] % 2,
    ),
    "class weights": (
        CrossEntropy(class_weights=(0.5, 2.0, 1.0)),
        lambda x, t: F.cross_entropy(x, t, torch.tensor([0.5, 2.0, 1.0])),
        CLASSES,
    ),
    "class weights, ignored labels and smoothing": (
        CrossEntropy(class_weights=(0.5, 2.0, 1.0), ignore_index=2, label_smoothing=0.3),
        lambda x, t: F.cross_entropy(
            x, t, torch.tensor([0.5, 2.0, 1.0]), ignore_index=2, label_smoothing=0.3
        ),
        CLASSES,
    ),
    "binary cross-entropy": (
        BINARY_CROSS_ENTROPY,
        F.binary_cross_entropy_with_logits,
        TARGETS,
    ),
    "mean squared error": (MEAN_SQUARED_ERROR, F.mse_loss, TARGETS),
    "mean absolute error": (MEAN_ABSOLUTE_ERROR, F.l1_loss, TARGETS),
    "Dice": (Dice(), _dice, CLASSES),
    "a Relax function": (
        _written_in_relax(),
        lambda x, t: ((x - t).abs() ** 3).mean(),
        TARGETS,
    ),
}


def _run(loss: Loss) -> ReferenceRun:
    """A model whose prediction is minus its parameter."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(LOGITS.shape, "float32"))
    with builder.function("main", params=[x]):
        with builder.dataflow():
            output = builder.emit_output(relax.op.negative(x))
        builder.emit_func_output(output)
    model = from_relax(builder.get(), {"x": LOGITS})
    return ReferenceRun(build_step_by_recipe(model, Recipe(loss)))


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_pytorch(name: str) -> None:
    loss, reference, labels = CASES[name]
    run = _run(loss)
    tensor = torch.from_numpy(LOGITS.copy()).requires_grad_()
    expected = reference(-tensor, torch.from_numpy(labels))
    expected.backward()
    assert run(labels)["loss"] == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(run.gradients()["x"], tensor.grad, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("label", [3, -1, -101, 2**40])
def test_a_label_that_is_no_class_makes_the_loss_nan_and_reads_nothing_outside(label: int) -> None:
    labels = CLASSES.copy()
    labels[1, 0] = label
    run = _run(CrossEntropy())
    results = run(labels)
    assert np.isnan(results["loss"])
    assert results["correct"] <= labels.size - 1
    gradient = run.gradients()["x"]
    assert np.isnan(gradient[1, :, 0]).all()


def test_ignored_labels_may_be_anything() -> None:
    labels = CLASSES.copy()
    labels[1, 0] = -(2**40)
    run = _run(CrossEntropy(ignore_index=-(2**40)))
    assert np.isfinite(run(labels)["loss"])
    assert (run.gradients()["x"][1, :, 0] == 0).all()


def test_class_weights_must_be_as_many_as_classes() -> None:
    with pytest.raises(UnsupportedModelError, match="2 class weights, the model returns 3 classes"):
        _run(CrossEntropy(class_weights=(1.0, 2.0)))
