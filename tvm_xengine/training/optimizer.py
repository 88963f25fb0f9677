"""What an optimizer is: from a parameter and its gradient to the new parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tvm import relax

from tvm_xengine.kernels.te.updates.optimizer import Rule, update_kernel
from tvm_xengine.training.emitter import Emitter


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


def emit_update(
    emitter: Emitter,
    rule: Rule,
    update: Update,
    optimizer: Optimizer,
    fields: Sequence[str],
    factors: tuple[str, ...] = (),
    *,
    decoupled: bool = False,
) -> tuple[relax.Expr, ...]:
    """Emit an update kernel, whose results are the new parameter and the new slots.

    Parameters
    ----------
    fields
        The fields of the optimizer that the kernel takes as options.
    factors
        Names of what the optimizer emitted once for the step.
    """
    slots = optimizer.slots
    state = (update.slots[slot] for slot in slots)
    inputs = [update.parameter, *state, update.gradient, update.lr, *update.factors, *update.scale]
    names = (f"{update.name}_new", *(f"{update.name}_new_{slot}" for slot in slots))
    kernel = update_kernel(rule, slots, factors)
    options = {name: getattr(optimizer, name) for name in fields}
    name = f"{update.name}_update"
    return emitter.call_many(kernel, inputs, name, names, decoupled=decoupled, **options)


def check_betas(betas: tuple[float, float]) -> None:
    """Refuse shares that averages cannot keep."""
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas must be two numbers in [0, 1), got {betas}")


def check_not_negative(**values: float) -> None:
    """Refuse negative values and infinities, by name."""
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must not be negative, and finite, got {value}")
