"""Optimizers: from a parameter and its gradient to the new parameter.

Options have PyTorch's names and defaults, and updates have its values (Lion: those of Chen et al.
2023).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import relax

from tvm_xengine.checks.arguments import checked_fields
from tvm_xengine.checks.names import meant
from tvm_xengine.kernels.te.updates.adaptive import adadelta, adagrad, decayed_rate, lion, rmsprop
from tvm_xengine.kernels.te.updates.optimizer import dampening_share, momentum, sgd
from tvm_xengine.training.adam import Adam, Adamax, AdamW, NAdam, RAdam
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.optimizer import (
    Optimizer,
    Rate,
    Update,
    check_betas,
    check_not_negative,
    emit_update,
)


@checked_fields
@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with momentum ``v = momentum * v + (1 - dampening) * g``.

    Attributes
    ----------
    lr
        Learning rate.
    momentum
        Share of the velocity that each step keeps; 0 keeps no state.
    dampening
        Share of the gradient that does not enter the velocity, after the first step.
    weight_decay
        Times the parameter, is added to the gradient.
    nesterov
        Looks one step of the momentum ahead.
    maximize
        Ascends instead.
    """

    lr: float = 0.01
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    maximize: bool = False

    initial_slot = 0.0

    def __post_init__(self) -> None:
        if self.nesterov and (not self.momentum or self.dampening):
            raise ValueError("nesterov needs a momentum > 0 and no dampening")
        check_not_negative(lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    @property
    def needs_step(self) -> bool:
        return bool(self.momentum and self.dampening)

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        if not self.needs_step:
            return ()
        steps, name = [rate.steps()], "dampening_share"
        return (emitter.call(dampening_share, steps, name, dampening=self.dampening, dtype=dtype),)

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        if not self.momentum:
            return emit_update(emitter, sgd, update, self, ("weight_decay", "maximize"))
        fields = ("momentum", "nesterov", "weight_decay", "maximize")
        return emit_update(emitter, momentum, update, self, fields, ("share",) * self.needs_step)


@checked_fields
@dataclass(frozen=True)
class Adadelta:
    """Steps as large as those before, by the gradient's share of its own average (Zeiler 2012).

    Attributes
    ----------
    lr
        Learning rate.
    rho
        How much the averages keep.
    eps
        Added to the averages.
    weight_decay
        Times the parameter, is added to the gradient.
    maximize
        Ascends instead.
    """

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    maximize: bool = False

    slots = ("square_average", "delta_average")
    initial_slot = 0.0
    needs_step = False

    def __post_init__(self) -> None:
        check_not_negative(lr=self.lr, eps=self.eps, weight_decay=self.weight_decay)
        if not 0 <= self.rho <= 1:
            raise ValueError(f"rho must be from 0 to 1, got {self.rho}")

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        return ()

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        fields = ("rho", "eps", "weight_decay", "maximize")
        return emit_update(emitter, adadelta, update, self, fields)


@checked_fields
@dataclass(frozen=True)
class RMSprop:
    """Divides by a running average of the gradient's magnitude (Hinton 2012; Graves 2013).

    Attributes
    ----------
    lr
        Learning rate.
    alpha
        How much the averages keep.
    eps
        Added to the root.
    weight_decay
        Times the parameter, is added to the gradient.
    momentum
        Of the scaled gradient.
    centered
        Divides by the standard deviation instead.
    maximize
        Ascends instead.
    """

    lr: float = 0.01
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    maximize: bool = False

    initial_slot = 0.0
    needs_step = False

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in ("lr", "alpha", "eps", "weight_decay")}
        check_not_negative(**values, momentum=self.momentum)

    @property
    def slots(self) -> tuple[str, ...]:
        mean = ("gradient_average",) if self.centered else ()
        velocity = ("velocity",) if self.momentum else ()
        return ("square_average", *mean, *velocity)

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        return ()

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        fields = ("alpha", "eps", "weight_decay", "momentum", "centered", "maximize")
        return emit_update(emitter, rmsprop, update, self, fields)


@checked_fields
@dataclass(frozen=True)
class Adagrad:
    """Divides by the root of the sum of all squared gradients (Duchi et al. 2011).

    Attributes
    ----------
    lr
        Learning rate.
    lr_decay
        The rate of step t is ``lr / (1 + (t - 1) * lr_decay)``.
    weight_decay
        Times the parameter, is added to the gradient.
    initial_accumulator_value
        Sum of squares before the first step.
    eps
        Added to the root.
    maximize
        Ascends instead.
    """

    lr: float = 0.01
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    maximize: bool = False

    slots = ("square_sum",)

    def __post_init__(self) -> None:
        names = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
        check_not_negative(**{name: getattr(self, name) for name in names})

    @property
    def initial_slot(self) -> float:
        return self.initial_accumulator_value

    @property
    def needs_step(self) -> bool:
        return bool(self.lr_decay)

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        if not self.lr_decay:
            return ()
        inputs, name = [rate.lr, rate.steps()], "decayed_rate"
        return (emitter.call(decayed_rate, inputs, name, lr_decay=self.lr_decay, dtype=dtype),)

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        if update.factors:  # the decayed rate stands in for the learning rate
            update = replace(update, lr=update.factors[0], factors=())
        return emit_update(emitter, adagrad, update, self, ("eps", "weight_decay", "maximize"))


@checked_fields
@dataclass(frozen=True)
class Lion:
    """The sign of a momentum, with decoupled weight decay (Chen et al. 2023).

    Attributes
    ----------
    lr
        Learning rate.
    betas
        How much of the momentum the update takes, and how much of it is kept.
    weight_decay
        Times the learning rate, the share by which each step shrinks the parameter.
    """

    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    slots = ("first_moment",)
    initial_slot = 0.0
    needs_step = False

    def __post_init__(self) -> None:
        check_betas(self.betas)
        check_not_negative(lr=self.lr, weight_decay=self.weight_decay)

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        return ()

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        fields = ("betas", "weight_decay")
        return emit_update(emitter, lion, update, self, fields, decoupled=True)


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
    "nesterov": SGD(momentum=0.9, nesterov=True),
    "adam": Adam(),
    "adamw": AdamW(),
    "rmsprop": RMSprop(),
    "adagrad": Adagrad(),
    "lion": Lion(),
    "nadam": NAdam(),
    "radam": RAdam(),
    "adamax": Adamax(),
    "adadelta": Adadelta(),
}


def optimizer_called(name: str) -> Optimizer:
    """The optimizer of that name with its usual settings."""
    if name not in OPTIMIZERS:
        raise ValueError(
            f"unknown optimizer {name!r}, expected one of {', '.join(OPTIMIZERS)}"
            f"{meant(name, OPTIMIZERS)}"
        )
    return OPTIMIZERS[name]
