"""A loss that the model computes itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.training.emitter import Emitter, dtype_of
from tvm_xengine.training.losses import EmittedLoss


@dataclass(frozen=True)
class ModelLoss:
    """The model's output is the loss; what it is compared with is among the model's inputs.

    Attributes
    ----------
    in_pytorch
        The loss in PyTorch, of what the model returns in evaluation, and targets; None where there is none.
    name
        What users see.
    """

    in_pytorch: Callable[..., Any] | None = None
    name: str = "what the model returns"

    def labels_type(self, prediction: relax.TensorType) -> None:
        if prediction.ndim:
            raise UnsupportedModelError(
                f"a model that brings its own loss returns one scalar, found {prediction}"
            )

    def labels_range(self, prediction: relax.TensorType) -> None:
        return None

    def emit(
        self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr | None
    ) -> EmittedLoss:
        one = relax.const(1.0, dtype_of(prediction))
        return EmittedLoss({"loss": prediction}, lambda: one)
