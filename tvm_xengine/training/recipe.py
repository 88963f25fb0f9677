"""How a model is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm_xengine.training.losses import CrossEntropy, Loss
from tvm_xengine.training.optimizers import SGD, Optimizer
from tvm_xengine.training.precision import MixedPrecision


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes
    ----------
    loss, optimizer
        What is minimised, and how.
    max_gradient_norm
        Limit for the norm of all gradients together; None does not clip.
    micro_batches
        How many batches of the model's size one step takes; their gradients are averaged.
    precision
        Short types to compute in; None computes in the types of the model.
    residuals_apart
        Whether a residual is added to a batch norm by an op of its own. The gradient of both then
        holds three large tensors at once instead of five, for one kernel more.
    """

    loss: Loss = field(default_factory=CrossEntropy)
    optimizer: Optimizer = field(default_factory=lambda: SGD(momentum=0.9))
    max_gradient_norm: float | None = None
    micro_batches: int = 1
    precision: MixedPrecision | None = None
    residuals_apart: bool = False

    def __post_init__(self) -> None:
        if self.max_gradient_norm is not None and self.max_gradient_norm <= 0:
            raise ValueError(f"max_gradient_norm must be > 0, got {self.max_gradient_norm}")
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches must be >= 1, got {self.micro_batches}")
