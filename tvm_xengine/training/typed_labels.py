"""Class numbers in another type than int64, as a caller in C keeps them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.scheduling.value_range import ValueRange
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.losses import CrossEntropy, Dice, EmittedLoss, Loss

TYPES = ("int64", "int32", "int16", "uint16", "int8", "uint8")
"""Types of labels."""


@dataclass(frozen=True)
class TypedLabels:
    """A loss whose class numbers have a type of `TYPES`.

    An ignored label that the type does not hold, such as -100 in uint8, cannot be given.
    """

    loss: Loss
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in TYPES:
            raise ValueError(f"labels have one of the types {', '.join(TYPES)}, got {self.dtype!r}")

    def labels_type(self, prediction: relax.TensorType) -> relax.TensorType:
        """The type of the labels.

        Raises
        ------
        UnsupportedModelError
            If the loss takes no class numbers, or the type does not hold them all.
        """
        labels = self.loss.labels_type(prediction)
        if labels is None or "int" not in str(labels.dtype):
            raise UnsupportedModelError(
                f"the loss takes no class numbers, so they cannot have the type {self.dtype}"
            )
        allowed, holds = self.loss.labels_range(prediction), np.iinfo(self.dtype)
        if allowed is not None and allowed.high > holds.max:
            raise UnsupportedModelError(
                f"labels of type {self.dtype} hold numbers to {holds.max}, the classes go to"
                f" {allowed.high}"
            )
        return relax.TensorType(static_shape(labels), self.dtype)

    def labels_range(self, prediction: relax.TensorType) -> ValueRange | None:
        """The values that labels may have."""
        allowed, holds = self.loss.labels_range(prediction), np.iinfo(self.dtype)
        if allowed is None:
            return None
        besides = tuple(v for v in allowed.besides if holds.min <= v <= holds.max)
        return ValueRange(allowed.low, allowed.high, besides)

    def emit(
        self, emitter: Emitter, prediction: relax.Expr, labels: relax.Expr | None
    ) -> EmittedLoss:
        """Emit the loss; kernels of its own read the labels as they are."""
        assert labels is not None
        if not isinstance(self.loss, CrossEntropy | Dice):
            wide = self.loss.labels_type(prediction.ty)
            assert wide is not None
            labels = emitter.bind(relax.op.astype(labels, str(wide.dtype)), "labels_widened")
        return self.loss.emit(emitter, prediction, labels)
