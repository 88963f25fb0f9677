"""Optimizers: from a parameter and its gradient to the new parameter.

Options have PyTorch's names and defaults, and updates have its values (Lion: those of Chen et al.
2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tvm import relax

from tvm_xengine.checks.arguments import checked_fields
from tvm_xengine.checks.names import meant
from tvm_xengine.kernels.te import adaptive
from tvm_xengine.kernels.te.optimizer import Rule, dampening_share, momentum, sgd, update_kernel
from tvm_xengine.training.emitter import Emitter, Option


class Optimizer(Protocol):
    """Turns a parameter, its gradient and the learning rate into the new parameter."""

    @property
    def lr(self) -> float:
        """Initial learning rate; every step reads the current one."""
        ...

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the state tensors kept per parameter, shaped like it."""
        ...

    @property
    def initial_slot(self) -> float:
        """Value of the state tensors before the first step."""
        ...

    @property
    def needs_step(self) -> bool:
        """Whether updates read the number of steps taken so far."""
        ...

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        """Emit what is the same for all parameters of a type, once per step."""
        ...

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        """Emit the update; returns the new parameter and the new slots, in order."""
        ...


@dataclass(frozen=True)
class Rate:
    """The learning rate (float32) and the number of earlier steps (int32), scalars."""

    lr: relax.Expr
    step: relax.Expr | None = None

    def steps(self) -> relax.Expr:
        """The number of earlier steps, of an optimizer that said it needs it."""
        if self.step is None:
            raise ValueError("the optimizer needs the number of steps taken")
        return self.step


@dataclass(frozen=True)
class Update:
    """What one update reads.

    Attributes
    ----------
    name
        Name of the parameter.
    slots
        The state tensors of the parameter, by slot.
    factors
        What the optimizer emitted once for the step.
    scale
        Factors for the gradient, scalars.
    """

    name: str
    parameter: relax.Expr
    gradient: relax.Expr
    slots: Mapping[str, relax.Expr]
    lr: relax.Expr
    factors: Sequence[relax.Expr] = ()
    scale: Sequence[relax.Expr] = ()


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
        _check_not_negative(lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    @property
    def needs_step(self) -> bool:
        return bool(self.momentum and self.dampening)

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        if not self.needs_step:
            return ()
        share = emitter.call(
            dampening_share,
            [rate.steps()],
            "dampening_share",
            dampening=self.dampening,
            dtype=dtype,
        )
        return (share,)

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        options: dict[str, Option] = {"weight_decay": self.weight_decay, "maximize": self.maximize}
        if not self.momentum:
            return _emit(emitter, sgd, update, self, options)
        options |= {"momentum": self.momentum, "nesterov": self.nesterov}
        return _emit(emitter, momentum, update, self, options, ("share",) * self.needs_step)


@checked_fields
@dataclass(frozen=True)
class Adam:
    """Adam with bias correction (Kingma and Ba 2015).

    Attributes
    ----------
    lr
        Learning rate.
    betas
        How much the averages of the gradient and of its square keep.
    eps
        Added to the root of the second average.
    weight_decay
        Times the parameter, is added to the gradient.
    decoupled
        Whether weight decay shrinks the parameter itself, as in `AdamW`.
    amsgrad
        Divides by the largest second average so far.
    maximize
        Ascends instead.
    """

    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    amsgrad: bool = False
    maximize: bool = False

    initial_slot = 0.0
    needs_step = True

    def __post_init__(self) -> None:
        _check_betas(self.betas)
        _check_not_negative(lr=self.lr, eps=self.eps, weight_decay=self.weight_decay)

    @property
    def slots(self) -> tuple[str, ...]:
        largest = ("largest_moment",) if self.amsgrad else ()
        return ("first_moment", "second_moment", *largest)

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        return emitter.call_many(
            adaptive.adam_factors,
            [rate.lr, rate.steps()],
            "adam_factors",
            ("adam_rate", "adam_root"),
            beta1=self.betas[0],
            beta2=self.betas[1],
            dtype=dtype,
        )

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        options: dict[str, Option] = {
            "beta1": self.betas[0],
            "beta2": self.betas[1],
            "epsilon": self.eps,
            "weight_decay": self.weight_decay,
            "decoupled": self.decoupled,
            "maximize": self.maximize,
        }
        return _emit(emitter, adaptive.adam, update, self, options, ("rate", "root"))


@checked_fields
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Attributes
    ----------
    lr, betas, eps
        As in `Adam`.
    weight_decay
        Times the learning rate, the share by which each step shrinks the parameter.
    decoupled, amsgrad, maximize
        As in `Adam`.
    """

    weight_decay: float = 0.01
    decoupled: bool = True


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
        _check_not_negative(**values, momentum=self.momentum)

    @property
    def slots(self) -> tuple[str, ...]:
        mean = ("gradient_average",) if self.centered else ()
        velocity = ("velocity",) if self.momentum else ()
        return ("square_average", *mean, *velocity)

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        return ()

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        options: dict[str, Option] = {
            "alpha": self.alpha,
            "epsilon": self.eps,
            "weight_decay": self.weight_decay,
            "maximize": self.maximize,
        }
        if self.momentum:
            options["momentum"] = self.momentum
        if self.centered:
            options["centered"] = True
        return _emit(emitter, adaptive.rmsprop, update, self, options)


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
        _check_not_negative(**{name: getattr(self, name) for name in names})

    @property
    def initial_slot(self) -> float:
        return self.initial_accumulator_value

    @property
    def needs_step(self) -> bool:
        return bool(self.lr_decay)

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        if not self.lr_decay:
            return ()
        decayed = emitter.call(
            adaptive.decayed_rate,
            [rate.lr, rate.steps()],
            "decayed_rate",
            lr_decay=self.lr_decay,
            dtype=dtype,
        )
        return (decayed,)

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        if update.factors:  # the decayed rate stands in for the learning rate
            update = replace(update, lr=update.factors[0], factors=())
        options: dict[str, Option] = {
            "epsilon": self.eps,
            "weight_decay": self.weight_decay,
            "maximize": self.maximize,
        }
        return _emit(emitter, adaptive.adagrad, update, self, options)


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
        _check_betas(self.betas)
        _check_not_negative(lr=self.lr, weight_decay=self.weight_decay)

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        return ()

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        options: dict[str, Option] = {
            "beta1": self.betas[0],
            "beta2": self.betas[1],
            "weight_decay": self.weight_decay,
            "decoupled": True,
        }
        return _emit(emitter, adaptive.lion, update, self, options)


def _emit(
    emitter: Emitter,
    rule: Rule,
    update: Update,
    optimizer: Optimizer,
    options: Mapping[str, Option],
    factors: tuple[str, ...] = (),
) -> tuple[relax.Expr, ...]:
    """Emit an update kernel, whose results are the new parameter and the new slots."""
    slots = optimizer.slots
    state = (update.slots[slot] for slot in slots)
    inputs = [update.parameter, *state, update.gradient, update.lr, *update.factors, *update.scale]
    names = (f"{update.name}_new", *(f"{update.name}_new_{slot}" for slot in slots))
    kernel = update_kernel(rule, slots, factors)
    return emitter.call_many(kernel, inputs, f"{update.name}_update", names, **options)


def _check_betas(betas: tuple[float, float]) -> None:
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas must be two numbers in [0, 1), got {betas}")


def _check_not_negative(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must not be negative, and finite, got {value}")


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
    "nesterov": SGD(momentum=0.9, nesterov=True),
    "adam": Adam(),
    "adamw": AdamW(),
    "rmsprop": RMSprop(),
    "adagrad": Adagrad(),
    "lion": Lion(),
}


def optimizer_called(name: str) -> Optimizer:
    """The optimizer of that name with its usual settings."""
    if name not in OPTIMIZERS:
        raise ValueError(
            f"unknown optimizer {name!r}, expected one of {', '.join(OPTIMIZERS)}"
            f"{meant(name, OPTIMIZERS)}"
        )
    return OPTIMIZERS[name]
