"""The interface of gradient rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relax

from tvm_xengine.relax_ir.forward_ops import ForwardOp
from tvm_xengine.training.emitter import Emitter, shape_of

Tensors = tuple[relax.Expr, ...]
Gradients = tuple[relax.Expr | None, ...]


@dataclass(frozen=True)
class PartGradient:
    """The gradient of neighbouring positions of one axis; that of all others is zero.

    Attributes
    ----------
    gradient
        Of these positions.
    begin
        The first of them.
    name
        For the gradient of the whole tensor.
    """

    gradient: relax.Expr
    axis: int
    begin: int
    name: str

    @property
    def end(self) -> int:
        """The position behind the last one."""
        return self.begin + shape_of(self.gradient)[self.axis]


Pulled = tuple[relax.Expr | PartGradient | None, ...]
Pullback = Callable[[Gradients], Pulled]


@dataclass(frozen=True)
class RandomKey:
    """The key of the random numbers of one op: equal keys give equal numbers.

    Attributes
    ----------
    seed, step
        Scalars of the training state.
    op
        Position of the op in the model.
    """

    seed: relax.Expr
    step: relax.Expr
    op: int


@dataclass(frozen=True)
class Site:
    """One op of the model, about to be emitted into the training step.

    Attributes
    ----------
    source
        The op as it stands in the model.
    operands
        The tensors it reads, in the training step.
    needs
        Which of them need a gradient.
    random
        Key for random numbers, for ops that draw any.
    """

    source: ForwardOp
    operands: Tensors
    needs: tuple[bool, ...]
    random: RandomKey | None = None

    @property
    def name(self) -> str:
        """Name of the layer."""
        return self.source.name

    @property
    def attrs(self) -> tvm.ir.Attrs:
        """Attributes of the call."""
        return self.source.call.attrs

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        return shape_of(self.source.results[0])

    def grad_name(self, position: int) -> str:
        """Name for the gradient of an operand: that of the parameter, or of this layer."""
        operand = self.source.operands[position]
        if isinstance(operand, relax.DataflowVar) or not isinstance(operand, relax.Var):
            return f"{self.name}_backward"
        return f"{operand.name}_grad"

    def emit(self, emitter: Emitter) -> Tensors:
        """Bind the call as it is; a tuple is taken apart."""
        call = self.source.rebuild(self.operands)
        results = self.source.results
        if len(results) == 1 and not isinstance(self.source.call.ty, relax.TupleType):
            return (emitter.bind(call, self.name),)
        made = emitter.bind(call, self.name)
        return tuple(
            emitter.bind(relax.TupleGetItem(made, k), f"{self.name}_{k}")
            for k in range(len(results))
        )


@dataclass(frozen=True)
class Linearized:
    """The forward result of an op and how gradients flow back through it.

    Attributes
    ----------
    outputs
        One tensor per result of the op.
    pullback
        From the gradients of the outputs (None where they are not needed) to the gradients of the
        operands (None where `Site.needs` is False), or of parts of them. Called at most once, after
        all later ops.
    updates
        Pairs (old, new): state tensors that the op replaces once per step.
    """

    outputs: Tensors
    pullback: Pullback
    updates: tuple[tuple[relax.Expr, relax.Expr], ...] = ()


Rule = Callable[[Emitter, Site], Linearized]


def by_pullback(pull: Callable[[Emitter, Site, relax.Expr], Pulled]) -> Rule:
    """The rule of an op that is emitted as it stands in the model and has one result.

    `pull` is given the gradient of the result.
    """

    def rule(emitter: Emitter, site: Site) -> Linearized:
        (output,) = site.emit(emitter)
        return Linearized((output,), lambda gradients: pull(emitter, site, gradients[0]))

    return rule
