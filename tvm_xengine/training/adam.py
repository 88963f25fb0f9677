"""Adam and its relatives, which average gradients and their squares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax

from tvm_xengine.checks.arguments import checked_fields
from tvm_xengine.kernels.te.updates import adam
from tvm_xengine.kernels.te.updates.optimizer import Rule
from tvm_xengine.training.emitter import Emitter, Option
from tvm_xengine.training.optimizer import (
    Rate,
    Update,
    check_betas,
    check_not_negative,
    emit_update,
)

_Kernels = tuple[Rule, Callable[..., Any], tuple[str, ...], dict[str, Option]]
"""The update, the kernel of its factors, their names, and options of that kernel."""


@dataclass(frozen=True)
class _OfMoments:
    """What they share: `lr`, `betas` and `eps` as in PyTorch; the order of later fields differs."""

    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    initial_slot = 0.0
    needs_step = True

    def __post_init__(self) -> None:
        check_betas(self.betas)
        check_not_negative(lr=self.lr, eps=self.eps, weight_decay=self.weight_decay)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("first_moment", "second_moment")

    def _kernels(self) -> _Kernels:
        raise NotImplementedError

    def factors(self, emitter: Emitter, rate: Rate, dtype: str) -> tuple[relax.Expr, ...]:
        rule, kernel, names, options = self._kernels()
        return emitter.call_many(
            kernel,
            [rate.lr, rate.steps()],
            f"{rule.__name__}_factors",
            tuple(f"{rule.__name__}_{name}" for name in names),
            betas=self.betas,
            dtype=dtype,
            **options,
        )

    def emit(self, emitter: Emitter, update: Update) -> tuple[relax.Expr, ...]:
        rule, _, names, _ = self._kernels()
        fields = ("betas", "eps", "weight_decay", "maximize")
        switches = ("decoupled", "decoupled_weight_decay")
        decoupled = any(getattr(self, name, False) for name in switches)
        return emit_update(emitter, rule, update, self, fields, names, decoupled=decoupled)


@checked_fields
@dataclass(frozen=True)
class Adam(_OfMoments):
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

    decoupled: bool = False
    amsgrad: bool = False
    maximize: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        return (*super().slots, "largest_moment") if self.amsgrad else super().slots

    def _kernels(self) -> _Kernels:
        return adam.adam, adam.adam_factors, ("rate", "root"), {}


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

    lr: float = 0.002
    maximize: bool = False
    momentum_decay: float = 0.004
    decoupled_weight_decay: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(momentum_decay=self.momentum_decay)

    def momentum_product(self, steps: int) -> float:
        """The product of the momenta of so many steps, which PyTorch keeps for each parameter."""
        q, product = adam.NADAM_BASE**self.momentum_decay, 1.0
        for step in range(1, steps + 1):
            product *= self.betas[0] * (1 - 0.5 * q**step)
            if product == 0:
                break
        return product

    def _kernels(self) -> _Kernels:
        names = ("of_gradient", "of_moment", "root")
        options: dict[str, Option] = {"momentum_decay": self.momentum_decay}
        return adam.nadam, adam.nadam_factors, names, options


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

    maximize: bool = False
    decoupled_weight_decay: bool = False

    def _kernels(self) -> _Kernels:
        return adam.radam, adam.radam_factors, ("rate", "divides"), {}


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

    lr: float = 0.002
    maximize: bool = False

    slots = ("first_moment", "largest_gradient")

    def _kernels(self) -> _Kernels:
        return adam.adamax, adam.adamax_factors, ("rate",), {}
