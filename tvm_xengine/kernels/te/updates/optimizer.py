"""Optimizer updates, one kernel per parameter.

Every later stage of a kernel reads the NEW value of what an earlier stage wrote, and the old value
of nothing that was written, so that each output may be written over the tensor that it replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, Signature

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.inplace import writes_over
from tvm_xengine.kernels.te.pointwise.function import lesser

Element = Callable[..., Expr]
"""An element of a tensor that is not stored, by its index."""


@dataclass(frozen=True)
class Updated:
    """What an update reads of one parameter.

    Attributes
    ----------
    slots
        The old state of the parameter.
    gradient
        Scaled, with the weight decay added.
    factors
        Scalars that the optimizer has computed once for the step.
    """

    parameter: te.Tensor
    slots: Sequence[te.Tensor]
    gradient: Element
    lr: te.Tensor
    factors: Sequence[te.Tensor]

    def rate(self) -> Expr:
        """The learning rate in the type of the parameter."""
        return self.lr().astype(self.parameter.dtype)

    def squared(self, *i: Var) -> Expr:
        """The square of the gradient."""
        return self.gradient(*i) * self.gradient(*i)

    def stored(self, value: Element, name: str) -> te.Tensor:
        """A tensor like the parameter."""
        return te.compute(self.parameter.shape, value, name=name)

    def average(self, slot: int, value: Element, keep: float, name: str) -> te.Tensor:
        """The slot after it has moved towards `value`: keep * old + (1 - keep) * value."""
        old = self.slots[slot]
        return self.stored(lambda *i: old(*i) * keep + value(*i) * (1 - keep), name)


Rule = Callable[..., tuple[Element, list[te.Tensor]]]
"""From what an update reads, and options by name, to what is subtracted from the parameter and to the
new slots."""


@cache
def update_kernel(
    rule: Rule, slots: tuple[str, ...], factors: tuple[str, ...] = ()
) -> Callable[..., list[te.Tensor]]:
    """The kernel from a parameter, its slots, gradient and learning rate to the new parameter and slots.

    It takes the factors of the rule behind the learning rate, then scalars that the gradient is
    multiplied by. The weight decay is added to the gradient or, `decoupled`, shrinks the parameter.
    """

    def kernel(
        *tensors: te.Tensor,
        weight_decay: float,
        decoupled: bool = False,
        maximize: bool = False,
        **options: float,
    ) -> list[te.Tensor]:
        parameter, *rest = tensors
        given = 3 + len(slots) + len(factors)
        gradient, lr, *scalars = rest[len(slots) : given - 1]

        def decayed(*i: Var) -> Expr:
            result = gradient(*i)
            for factor in tensors[given:]:
                result = result * factor()
            if maximize:
                result = -result
            is_added = weight_decay and not decoupled
            return result + parameter(*i) * weight_decay if is_added else result

        read = Updated(parameter, rest[: len(slots)], decayed, lr, scalars)
        change, made = rule(read, **options)

        def new_parameter(*i: Var) -> Expr:
            kept = parameter(*i)
            if weight_decay and decoupled:
                kept = kept * (tvm.tirx.const(1, parameter.dtype) - read.rate() * weight_decay)
            return kept - change(*i)

        return [read.stored(new_parameter, "new_parameter"), *made]

    names = ("parameter", *slots, "gradient", "lr", *factors)
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    scale = Parameter("scale", Parameter.VAR_POSITIONAL)
    kernel.__name__ = f"{rule.__name__}_update"
    kernel.__signature__ = Signature([*parameters, scale])  # type: ignore[attr-defined]
    return writes_over(*((k, k) for k in range(len(slots) + 1)))(kernel)


def sgd(read: Updated) -> tuple[Element, list[te.Tensor]]:
    """p - lr * g."""
    return lambda *i: read.rate() * read.gradient(*i), []


def momentum(
    read: Updated, momentum: float, nesterov: bool = False
) -> tuple[Element, list[te.Tensor]]:
    """v = momentum * v + g; p = p - lr * v, or p - lr * (g + momentum * v) with `nesterov`.

    A factor is the share of the gradient that enters the velocity.
    """
    (velocity,) = read.slots

    def moved(*i: Var) -> Expr:
        counted = read.gradient(*i)
        for share in read.factors:
            counted = share() * counted
        return velocity(*i) * momentum + counted

    new = read.stored(moved, "new_velocity")

    def change(*i: Var) -> Expr:
        return read.rate() * (read.gradient(*i) + new(*i) * momentum if nesterov else new(*i))

    return change, [new]


def dampening_share(step: te.Tensor, *, dampening: float, dtype: str) -> te.Tensor:
    """How much of the gradient counts: all of the first, later ``1 - dampening``, as in PyTorch."""
    one, later = tvm.tirx.const(1, dtype), tvm.tirx.const(1 - dampening, dtype)
    return te.compute((), lambda: tvm.tirx.Select(step() == 0, one, later), name="share")


@writes_over((0, 0))
def advance_step(step: te.Tensor) -> te.Tensor:
    """The number of steps taken, plus one."""
    return te.compute((), lambda: step() + tvm.tirx.const(1, step.dtype), name="next_step")


def copied(x: te.Tensor) -> te.Tensor:
    """The same elements in a tensor of its own, for a buffer that is set to another tensor."""
    return te.compute(x.shape, lambda *i: x(*i), name="copied")


def clipped_value(gradient: te.Tensor, *, limit: float) -> te.Tensor:
    """The gradient within -limit .. limit, element by element; NaN stays NaN."""
    low, high = (tvm.tirx.const(value, gradient.dtype) for value in (-limit, limit))

    def element(*i: Var) -> Expr:
        value = gradient(*i)
        above = tvm.tirx.Select(value > high, high, value)
        return tvm.tirx.Select(value < low, low, above)

    return te.compute(gradient.shape, element, name="clipped")


def squared_norm(gradient: te.Tensor) -> te.Tensor:
    """The sum of the squares of a gradient."""
    over = [te.reduce_axis((0, extent), name=f"i{a}") for a, extent in enumerate(gradient.shape)]
    return te.compute(
        (), lambda: te.sum(gradient(*over) * gradient(*over), axis=over), name="squared_norm"
    )


def clipping_scale(*squared_norms: te.Tensor, max_norm: float) -> te.Tensor:
    """The factor that limits the norm of all gradients together, as ``clip_grad_norm_`` does."""
    dtype = squared_norms[0].dtype

    def scale() -> Expr:
        total = squared_norms[0]()
        for norm in squared_norms[1:]:
            total = total + norm()
        factor = tvm.tirx.const(max_norm, dtype) / (te.sqrt(total) + tvm.tirx.const(1e-6, dtype))
        return lesser(factor, tvm.tirx.const(1, dtype))

    return te.compute((), scale, name="clipping_scale")
