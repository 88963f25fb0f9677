"""Optimizers: one fused in-place update kernel per parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tvm import relax

from tvm_xengine.kernels.te.optimizer import adam_update, momentum_update, sgd_update
from tvm_xengine.training.emitter import Emitter


class Optimizer(Protocol):
    """Turns a parameter, its gradient and the learning rate into the new parameter."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the state tensors kept per parameter, shaped like it and zero at first."""
        ...

    @property
    def needs_step(self) -> bool:
        """Whether updates read the number of steps taken so far."""
        ...

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        """Emit the update; returns the new parameter and the new slots, in order."""
        ...


@dataclass(frozen=True)
class Update:
    """What one update reads.

    Attributes
    ----------
    name
        Name of the parameter.
    slots
        The state tensors of the parameter, by slot.
    lr, step
        Learning rate (float32) and number of earlier steps (int32), scalars.
    scale
        Factors for the gradient, scalars.
    """

    name: str
    parameter: relax.Expr
    gradient: relax.Expr
    slots: Mapping[str, relax.Expr]
    lr: relax.Expr
    step: relax.Expr | None = None
    scale: Sequence[relax.Expr] = ()


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with PyTorch's momentum: v = mu * v + g; p = p - lr * v."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum > 0")
        _check_not_negative(momentum=self.momentum, weight_decay=self.weight_decay)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    @property
    def needs_step(self) -> bool:
        return False

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        if not self.momentum:
            new = emitter.call(
                sgd_update,
                [update.parameter, update.gradient, update.lr, *update.scale],
                f"{update.name}_new",
                weight_decay=self.weight_decay,
            )
            return (new,)
        velocity = update.slots["velocity"]
        return emitter.call_many(
            momentum_update,
            [update.parameter, velocity, update.gradient, update.lr, *update.scale],
            f"{update.name}_update",
            (f"{update.name}_new", f"{update.name}_new_velocity"),
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
        )


@dataclass(frozen=True)
class Adam:
    """Adam with bias correction; with `decoupled` weight decay it is AdamW."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    def __post_init__(self) -> None:
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= beta < 1:
                raise ValueError(f"{name} must be in [0, 1), got {beta}")
        _check_not_negative(epsilon=self.epsilon, weight_decay=self.weight_decay)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("first_moment", "second_moment")

    @property
    def needs_step(self) -> bool:
        return True

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        if update.step is None:
            raise ValueError(f"{update.name}: Adam needs the number of steps taken")
        slots = [update.slots[slot] for slot in self.slots]
        return emitter.call_many(
            adam_update,
            [
                update.parameter,
                *slots,
                update.gradient,
                update.lr,
                update.step,
                *update.scale,
            ],
            f"{update.name}_update",
            (f"{update.name}_new", *(f"{update.name}_new_{slot}" for slot in self.slots)),
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )


def _check_not_negative(**values: float) -> None:
    for name, value in values.items():
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
    "nesterov": SGD(momentum=0.9, nesterov=True),
    "adam": Adam(),
    "adamw": Adam(weight_decay=0.01, decoupled=True),
}


def optimizer_called(name: str) -> Optimizer:
    """The optimizer of that name with its usual settings."""
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}, expected one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]
