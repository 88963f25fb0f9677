"""The recipe of training: loss, optimizer and their options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm_xengine.training.forward.precision import MixedPrecision
from tvm_xengine.training.losses import CrossEntropy, Loss
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import SGD


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with an optimizer, and a learning rate, of their own.

    Attributes
    ----------
    parameters
        Names in the forward function.
    lr_ratio
        Its rate by that of the recipe's optimizer, where that begins at 0 and does not tell.
    """

    parameters: frozenset[str]
    optimizer: Optimizer
    lr_ratio: float | None = None


@dataclass(frozen=True)
class Recipe:
    """The recipe of training: loss, optimizer and their options.

    Attributes
    ----------
    loss, optimizer
        What is minimised, and how.
    groups
        Parameters with other optimizers than `optimizer`; the first that names one counts.
    max_gradient_value
        Limit for the magnitude of each element of a gradient, before the norm is limited; None
        does not clip.
    max_gradient_norm
        Limit for the norm of all gradients together; None does not clip.
    micro_batches
        How many batches of the model's size one step takes; their gradients are averaged.
    precision
        Short types to compute in; None computes in the types of the model.
    draws_in_updates
        Whether updates draw random numbers, such as to round parameters: seed and step are then state.
    residuals_apart
        Whether a residual is added to a batch norm by an op of its own. The gradient of both then
        holds three large tensors at once instead of five, for one kernel more.
    """

    loss: Loss = field(default_factory=CrossEntropy)
    optimizer: Optimizer = field(default_factory=lambda: SGD(momentum=0.9))
    groups: tuple[ParameterGroup, ...] = ()
    max_gradient_value: float | None = None
    max_gradient_norm: float | None = None
    micro_batches: int = 1
    precision: MixedPrecision | None = None
    draws_in_updates: bool = False
    residuals_apart: bool = False

    def __post_init__(self) -> None:
        for name in ("max_gradient_value", "max_gradient_norm"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise ValueError(f"{name} must be > 0, got {limit}")
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches must be >= 1, got {self.micro_batches}")

    @property
    def optimizers(self) -> Sequence[Optimizer]:
        """The optimizer of all parameters that are in no group, then those of the groups."""
        return (self.optimizer, *(group.optimizer for group in self.groups))

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by before the backward, and the gradients divided by."""
        return 1.0 if self.precision is None else self.precision.loss_scale

    def group_of(self, parameter: str) -> int:
        """Position in `optimizers` of the optimizer of a parameter."""
        for position, group in enumerate(self.groups, start=1):
            if parameter in group.parameters:
                return position
        return 0
