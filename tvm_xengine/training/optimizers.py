"""Optimizers: from a parameter and its gradient to the new parameter.

Options have PyTorch's names and defaults, and updates have its values (Lion: those of Chen et al.
2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import relax

from tvm_xengine.checks.arguments import checked_fields
from tvm_xengine.checks.names import meant
from tvm_xengine.kernels.te.updates import adam_variants, adaptive
from tvm_xengine.kernels.te.updates.optimizer import Rule, dampening_share, momentum, sgd
from tvm_xengine.training.emitter import Emitter, Option
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
            return emit_update(emitter, sgd, update, self, options)
        options |= {"momentum": self.momentum, "nesterov": self.nesterov}
        return emit_update(emitter, momentum, update, self, options, ("share",) * self.needs_step)


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
        check_betas(self.betas)
        check_not_negative(lr=self.lr, eps=self.eps, weight_decay=self.weight_decay)

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
        return emit_update(emitter, adaptive.adam, update, self, options, ("rate", "root"))


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


@dataclass(frozen=True)
class _OfMoments:
    """What the relatives of Adam share: `lr`, `betas` and `eps` have PyTorch's defaults."""

    lr: float = 0.002
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    maximize: bool = False

    slots = ("first_moment", "second_moment")
    initial_slot = 0.0
    needs_step = True

    def __post_init__(self) -> None:
        check_betas(self.betas)
        check_not_negative(lr=self.lr, eps=self.eps, weight_decay=self.weight_decay)

    def _kernels(self) -> tuple[Rule, Callable[..., Any], tuple[str, ...], dict[str, Option]]:
        """The update, the kernel of its factors, their names, and options of that kernel."""
        raise NotImplementedError

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        rule, kernel, names, options = self._kernels()
        return emitter.call_many(
            kernel,
            [rate.lr, rate.steps()],
            f"{rule.__name__}_factors",
            tuple(f"{rule.__name__}_{name}" for name in names),
            beta1=self.betas[0],
            beta2=self.betas[1],
            dtype=dtype,
            **options,
        )

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        options: dict[str, Option] = {
            "beta1": self.betas[0],
            "beta2": self.betas[1],
            "epsilon": self.eps,
            "weight_decay": self.weight_decay,
            "decoupled": getattr(self, "decoupled_weight_decay", False),
            "maximize": self.maximize,
        }
        rule, _, names, _ = self._kernels()
        return emit_update(emitter, rule, update, self, options, names)


@checked_fields
@dataclass(frozen=True)
class NAdam(_OfMoments):
    """Adam with Nesterov's momentum (Dozat 2016).

    Attributes
    ----------
    lr, betas, eps, weight_decay, maximize
        As in `Adam`.
    momentum_decay
        How fast the momentum grows to the first of `betas`.
    decoupled_weight_decay
        Whether weight decay shrinks the parameter itself, as in `AdamW`.
    """

    momentum_decay: float = 0.004
    decoupled_weight_decay: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(momentum_decay=self.momentum_decay)

    def momentum_product(self, steps: int) -> float:
        """The product of the momenta of so many steps, which PyTorch keeps for each parameter."""
        q, product = 0.96**self.momentum_decay, 1.0
        for step in range(1, steps + 1):
            product *= self.betas[0] * (1 - 0.5 * q**step)
            if product == 0:
                break
        return product

    def _kernels(self) -> tuple[Rule, Callable[..., Any], tuple[str, ...], dict[str, Option]]:
        names = ("of_gradient", "of_moment", "root")
        options: dict[str, Option] = {"momentum_decay": self.momentum_decay}
        return adam_variants.nadam, adam_variants.nadam_factors, names, options


@checked_fields
@dataclass(frozen=True)
class RAdam(_OfMoments):
    """Adam that begins without its second moment (Liu et al. 2020).

    Attributes
    ----------
    lr, betas, eps, weight_decay, maximize
        As in `Adam`.
    decoupled_weight_decay
        Whether weight decay shrinks the parameter itself, as in `AdamW`.
    """

    lr: float = 0.001
    decoupled_weight_decay: bool = False

    def _kernels(self) -> tuple[Rule, Callable[..., Any], tuple[str, ...], dict[str, Option]]:
        return adam_variants.radam, adam_variants.radam_factors, ("rate", "divides"), {}


@checked_fields
@dataclass(frozen=True)
class Adamax(_OfMoments):
    """Adam that divides by the largest gradient, which decays (Kingma and Ba 2015).

    Attributes
    ----------
    lr, betas
        As in `Adam`.
    eps
        Added to the magnitude of a gradient.
    weight_decay, maximize
        As in `Adam`.
    """

    slots = ("first_moment", "largest_gradient")

    def _kernels(self) -> tuple[Rule, Callable[..., Any], tuple[str, ...], dict[str, Option]]:
        return adam_variants.adamax, adam_variants.adamax_factors, ("rate",), {}


@checked_fields
@dataclass(frozen=True)
class Adadelta:
    """Steps as large as those before, by the gradient's share of its own average (Zeiler 2012).

    Attributes
    ----------
    lr
        Learning rate.
    rho
        How much the averages keep, more than 0.
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
        if not 0 < self.rho <= 1:
            raise ValueError(f"rho must be greater than 0 and at most 1, got {self.rho}")

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        return ()

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        options: dict[str, Option] = {
            "rho": self.rho,
            "epsilon": self.eps,
            "weight_decay": self.weight_decay,
            "maximize": self.maximize,
        }
        return emit_update(emitter, adaptive.adadelta, update, self, options)


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
        return emit_update(emitter, adaptive.rmsprop, update, self, options)


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
        return emit_update(emitter, adaptive.adagrad, update, self, options)


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
        options: dict[str, Option] = {
            "beta1": self.betas[0],
            "beta2": self.betas[1],
            "weight_decay": self.weight_decay,
            "decoupled": True,
        }
        return emit_update(emitter, adaptive.lion, update, self, options)


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
