"""Losses: from the model's prediction and the labels to a scalar and the gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.training.emitter import Emitter, Kernel, shape_of
from tvm_xengine.training.kernels.loss import (
    binary_cross_entropy_backward,
    binary_cross_entropy_forward,
    cross_entropy_backward,
    cross_entropy_forward,
    mean_absolute_error_backward,
    mean_absolute_error_forward,
    mean_squared_error_backward,
    mean_squared_error_forward,
)


@dataclass(frozen=True)
class EmittedLoss:
    """A loss emitted into a training step.

    Attributes
    ----------
    results
        Scalars that the step returns, by name; the first one is ``loss``.
    gradient
        Emits the gradient of the prediction.
    """

    results: dict[str, relax.Expr]
    gradient: Callable[[], relax.Expr]


class Loss(Protocol):
    """Turns a prediction and labels into a scalar."""

    def labels_type(self, prediction: relax.TensorType) -> relax.TensorType:
        """The type of the labels that go with a prediction."""
        ...

    def emit(self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr) -> EmittedLoss:
        """Emit the loss, and offer its gradient."""
        ...


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross-entropy with class indices, averaged over the labels that count.

    Attributes
    ----------
    axis
        Axis of the classes; None takes 1, as PyTorch does.
    label_smoothing
        Share of the target that is spread evenly over all classes.
    ignore_index
        Label that does not count.
    """

    axis: int | None = None
    label_smoothing: float = 0.0
    ignore_index: int = -100

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")

    def labels_type(self, prediction: relax.TensorType) -> relax.TensorType:
        shape = [int(extent) for extent in prediction.shape]
        if len(shape) < 2:
            raise UnsupportedModelError(
                f"cross-entropy expects logits of shape (batch, classes, ...), found {shape}"
            )
        axis = self._axis(len(shape))
        return relax.TensorType(shape[:axis] + shape[axis + 1 :], "int64")

    def emit(self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr) -> EmittedLoss:
        axis = self._axis(len(shape_of(prediction)))
        loss, log_probabilities, counted, correct = emitter.call_many(
            cross_entropy_forward,
            [prediction, labels],
            "cross_entropy_forward",
            ("loss", "log_probabilities", "labels_counted", "correct"),
            axis=axis,
            label_smoothing=self.label_smoothing,
            ignore_index=self.ignore_index,
        )

        def gradient() -> relax.Expr:
            return emitter.call(
                cross_entropy_backward,
                [log_probabilities, labels, counted],
                "cross_entropy_backward",
                axis=axis,
                label_smoothing=self.label_smoothing,
                ignore_index=self.ignore_index,
            )

        return EmittedLoss({"loss": loss, "correct": correct}, gradient)

    def _axis(self, rank: int) -> int:
        return (1 if self.axis is None else self.axis) % rank


@dataclass(frozen=True)
class _PointwiseLoss:
    """A mean over elements of a function of prediction and target."""

    name: str
    forward: Kernel
    backward: Kernel

    def labels_type(self, prediction: relax.TensorType) -> relax.TensorType:
        return relax.TensorType(prediction.shape, prediction.dtype)

    def emit(self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr) -> EmittedLoss:
        loss = emitter.call(self.forward, [prediction, labels], "loss")
        return EmittedLoss(
            {"loss": loss},
            lambda: emitter.call(self.backward, [prediction, labels], f"{self.name}_backward"),
        )


BINARY_CROSS_ENTROPY: Loss = _PointwiseLoss(
    "binary_cross_entropy", binary_cross_entropy_forward, binary_cross_entropy_backward
)
MEAN_SQUARED_ERROR: Loss = _PointwiseLoss(
    "mean_squared_error", mean_squared_error_forward, mean_squared_error_backward
)
MEAN_ABSOLUTE_ERROR: Loss = _PointwiseLoss(
    "mean_absolute_error", mean_absolute_error_forward, mean_absolute_error_backward
)

LOSSES: dict[str, Loss] = {
    "cross_entropy": CrossEntropy(),
    "binary_cross_entropy": BINARY_CROSS_ENTROPY,
    "mse": MEAN_SQUARED_ERROR,
    "l1": MEAN_ABSOLUTE_ERROR,
}


def loss_called(name: str) -> Loss:
    """The loss of that name with its usual settings."""
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}, expected one of {', '.join(LOSSES)}")
    return LOSSES[name]
