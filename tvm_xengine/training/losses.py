"""Losses: from the model's prediction and the labels to a scalar and the gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tvm import relax

from tvm_xengine.checks.arguments import checked_fields
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.losses.loss import (
    binary_cross_entropy_backward,
    binary_cross_entropy_forward,
    cross_entropy_backward,
    cross_entropy_forward,
    dice_backward,
    dice_forward,
    mean_absolute_error_backward,
    mean_absolute_error_forward,
    mean_squared_error_backward,
    mean_squared_error_forward,
)
from tvm_xengine.relax_ir.forward_ops import read_forward_ops
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.scheduling.value_range import ValueRange
from tvm_xengine.training.differentiate import emit_forward
from tvm_xengine.training.emitter import Emitter, Kernel, Option, dtype_of, shape_of
from tvm_xengine.training.forward.input_ranges import index_ranges
from tvm_xengine.training.forward.simplify import simplified


@dataclass(frozen=True)
class EmittedLoss:
    """A loss emitted into a training step.

    Attributes
    ----------
    results
        Scalars that the step returns, by name; the first one is ``loss``.
    gradient
        Emits the gradient of the prediction.
    weight
        How much this batch counts in the mean of several, a scalar; None where all count the same.
    """

    results: dict[str, relax.Expr]
    gradient: Callable[[], relax.Expr]
    weight: relax.Expr | None = None


class Loss(Protocol):
    """Turns a prediction and labels into a scalar."""

    def labels_type(self, prediction: relax.TensorType) -> relax.TensorType | None:
        """The type of the labels that go with a prediction; None where the loss takes none."""
        ...

    def labels_range(self, prediction: relax.TensorType) -> ValueRange | None:
        """The values that labels may have; None where the loss takes any."""
        ...

    def emit(
        self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr | None
    ) -> EmittedLoss:
        """Emit the loss, and offer its gradient."""
        ...


@checked_fields
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
        Label that does not count. Any other one outside 0 .. classes - 1 is refused by the step's
        executables; in the kernels it makes the loss NaN.
    class_weights
        How much each class counts; None counts all the same.
    """

    axis: int | None = None
    label_smoothing: float = 0.0
    ignore_index: int = -100
    class_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")
        if not -(2**63) <= self.ignore_index < 2**63:
            raise ValueError(f"ignore_index must be a number of 64 bits, got {self.ignore_index}")

    def labels_type(self, prediction: relax.TensorType) -> relax.TensorType:
        shape = [int(extent) for extent in prediction.shape]
        if len(shape) < 2:
            raise UnsupportedModelError(
                f"cross-entropy expects logits of shape (batch, classes, ...), found {shape}"
            )
        axis = self.class_axis(len(shape))
        if self.class_weights is not None and len(self.class_weights) != shape[axis]:
            raise UnsupportedModelError(
                f"cross-entropy has {len(self.class_weights)} class weights, "
                f"the model returns {shape[axis]} classes"
            )
        return relax.TensorType(shape[:axis] + shape[axis + 1 :], "int64")

    def labels_range(self, prediction: relax.TensorType) -> ValueRange | None:
        classes = static_shape(prediction)[self.class_axis(prediction.ndim)]
        return ValueRange(0, classes - 1, (self.ignore_index,))

    def emit(self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr) -> EmittedLoss:
        options: dict[str, Option] = {
            "axis": self.class_axis(len(shape_of(prediction))),
            "label_smoothing": self.label_smoothing,
            "ignore_index": self.ignore_index,
        }
        weights: list[relax.Expr] = []
        if self.class_weights is not None:
            weights = [relax.const(np.array(self.class_weights), dtype_of(prediction))]
        loss, log_probabilities, counted, correct = emitter.call_many(
            cross_entropy_forward,
            [prediction, labels, *weights],
            "loss_forward",
            ("loss", "log_probabilities", "labels_counted", "correct"),
            **options,
        )

        def gradient() -> relax.Expr:
            return emitter.call(
                cross_entropy_backward,
                [log_probabilities, labels, counted, *weights],
                "loss_backward",
                **options,
            )

        return EmittedLoss({"loss": loss, "correct": correct}, gradient, counted)

    def class_axis(self, rank: int) -> int:
        """The axis of the classes in scores of so many axes, counted from 0."""
        return (1 if self.axis is None else self.axis) % rank


@dataclass(frozen=True)
class _PointwiseLoss:
    """A mean over elements of a function of prediction and target."""

    forward: Kernel
    backward: Kernel

    def labels_type(self, prediction: relax.TensorType) -> relax.TensorType:
        return relax.TensorType(prediction.shape, prediction.dtype)

    def labels_range(self, prediction: relax.TensorType) -> ValueRange | None:
        return None

    def emit(self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr) -> EmittedLoss:
        loss = emitter.call(self.forward, [prediction, labels], "loss")
        return EmittedLoss(
            {"loss": loss},
            lambda: emitter.call(self.backward, [prediction, labels], "loss_backward"),
        )


@dataclass(frozen=True)
class Dice:
    """Soft Dice loss over the classes of axis 1, for segmentation.

    Attributes
    ----------
    smooth
        Added to numerator and denominator, so that absent classes do not divide by zero.
    """

    smooth: float = 1.0

    def __post_init__(self) -> None:
        if self.smooth <= 0:
            raise ValueError(f"smooth must be > 0, got {self.smooth}")

    def labels_type(self, prediction: relax.TensorType) -> relax.TensorType:
        return CrossEntropy().labels_type(prediction)

    def labels_range(self, prediction: relax.TensorType) -> ValueRange | None:
        return ValueRange(0, static_shape(prediction)[1] - 1)

    def emit(self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr) -> EmittedLoss:
        loss, probabilities, above, below = emitter.call_many(
            dice_forward,
            [prediction, labels],
            "loss_forward",
            ("loss", "probabilities", "dice_above", "dice_below"),
            smooth=self.smooth,
        )
        tensors = [probabilities, labels, above, below]
        return EmittedLoss(
            {"loss": loss}, lambda: emitter.call(dice_backward, tensors, "loss_backward")
        )


@dataclass(frozen=True)
class FunctionLoss:
    """A loss written as a Relax function ``(prediction, labels) -> scalar``.

    Its ops need gradient rules, like those of a model.

    Attributes
    ----------
    in_pytorch
        The same in PyTorch, by which predictions are judged; None where there is none.
    """

    function: relax.Function
    in_pytorch: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if len(self.function.params) != 2:
            raise UnsupportedModelError(
                f"a loss takes (prediction, labels), found {len(self.function.params)} parameters"
            )
        result = self.function.ret_ty
        if not isinstance(result, relax.TensorType) or result.ndim != 0:
            raise UnsupportedModelError(f"a loss returns one scalar, found {result}")

    def labels_type(self, prediction: relax.TensorType) -> relax.TensorType:
        expected = self.function.params[0].ty
        if static_shape(expected) != static_shape(prediction):
            raise UnsupportedModelError(
                f"the loss expects a prediction {expected}, the model returns {prediction}"
            )
        return self.function.params[1].ty

    def labels_range(self, prediction: relax.TensorType) -> ValueRange | None:
        labels = self.function.params[1]
        source = read_forward_ops(self.function).live()
        return index_ranges(source, [labels], {}).get(labels.name)

    def emit(self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr) -> EmittedLoss:
        source = simplified(read_forward_ops(self.function).live())
        of_prediction, of_labels = source.params
        values = {of_prediction: prediction, of_labels: labels}
        tape = emit_forward(emitter, source, values, [of_prediction])
        (loss,) = tape.outputs

        def gradient() -> relax.Expr:
            one = relax.const(1.0, dtype_of(loss))
            pulled = dict(tape.pull_back(emitter, {0: one}))
            if of_prediction not in pulled:
                raise UnsupportedModelError("the loss does not depend on the prediction")
            return pulled[of_prediction]

        return EmittedLoss({"loss": loss}, gradient)


BINARY_CROSS_ENTROPY: Loss = _PointwiseLoss(
    binary_cross_entropy_forward, binary_cross_entropy_backward
)
MEAN_SQUARED_ERROR: Loss = _PointwiseLoss(mean_squared_error_forward, mean_squared_error_backward)
MEAN_ABSOLUTE_ERROR: Loss = _PointwiseLoss(
    mean_absolute_error_forward, mean_absolute_error_backward
)
