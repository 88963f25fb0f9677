"""Reverse-mode differentiation of a forward function, op by op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tvm import relax

from tvm_xengine.checks.operators import GRADIENT_ADVICE, located
from tvm_xengine.errors import MissingGradientError, UnsupportedModelError
from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.gradients.parts import assembled
from tvm_xengine.training.gradients.rules import WITHOUT_GRADIENT, gradient_rules
from tvm_xengine.training.rule import Linearized, PartGradient, RandomKey, Site


@dataclass(frozen=True)
class Randomness:
    """The source of the random numbers of a forward pass.

    Attributes
    ----------
    seed, step
        Scalars of the training state.
    first_op
        Number of the first op; passes of one step must not share numbers.
    """

    seed: relax.Expr
    step: relax.Expr
    first_op: int = 0

    def key(self, index: int) -> RandomKey:
        """The key of the op at a position."""
        return RandomKey(self.seed, self.step, self.first_op + index)


@dataclass(frozen=True)
class Tape:
    """A forward function emitted into a training step, ready to be walked backwards.

    Attributes
    ----------
    outputs
        The tensors that the forward function returns.
    updates
        Pairs (old, new): state tensors that the forward ops replace.
    writes
        Pairs (parameter of the forward function, new value): buffers that the function writes.
    """

    outputs: tuple[relax.Expr, ...]
    updates: tuple[tuple[relax.Expr, relax.Expr], ...]
    writes: tuple[tuple[relax.Var, relax.Expr], ...]
    _source: ForwardOps
    _linearized: tuple[Linearized, ...]
    _active: frozenset[relax.Var]

    def pull_back(
        self, emitter: Emitter, output_gradients: Mapping[int, relax.Expr]
    ) -> Iterator[tuple[relax.Var, relax.Expr]]:
        """Emit the backward ops; yield each active parameter with its gradient.

        A parameter is yielded as soon as no later op of the backward walk reads it or adds to its
        gradient, so that it may be updated right there.

        Parameters
        ----------
        output_gradients
            Gradients of the outputs that the loss depends on, by position.
        """
        gradients = _Gradients(emitter)
        for position, gradient in output_gradients.items():
            gradients.add(self._source.outputs[position], gradient)
        first_read = _first_reads(self._source, self._active)
        shared = _shared(self._source)
        for index in reversed(range(len(self._source.ops))):
            op, linearized = self._source.ops[index], self._linearized[index]
            above = tuple(gradients.take(result) for result in op.results)
            if any(gradient is not None for gradient in above):
                pulled = linearized.pullback(above)
                for operand, gradient in zip(op.operands, pulled, strict=True):
                    if gradient is not None and operand in self._active:
                        gradients.add(operand, gradient)
                        if operand in shared and not isinstance(gradient, PartGradient):
                            _note_origin(emitter, operand, gradient, op)
            for param in first_read.get(index, ()):
                gradient = gradients.take(param)
                if gradient is not None:
                    yield param, gradient
        for output in self._source.outputs:  # a parameter that is returned and that no op reads
            if output in self._active and (gradient := gradients.take(output)) is not None:
                yield output, gradient


def emit_forward(
    emitter: Emitter,
    source: ForwardOps,
    values: Mapping[relax.Var, relax.Expr],
    trainable: Collection[relax.Var],
    randomness: Randomness | None = None,
) -> Tape:
    """Emit the forward ops and remember how to differentiate them.

    Parameters
    ----------
    values
        What the parameters of the forward function are in the training step.
    trainable
        Parameters that need a gradient.

    Raises
    ------
    MissingGradientError
        Names every op without a gradient rule on the way from a trained parameter.
    UnsupportedModelError
        Says of every op that has a rule why the rule does not cover it.
    """
    active = active_variables(source, trainable) & _reaching(source)
    check_differentiable(source, active)
    rules = gradient_rules()
    made = dict(values)
    linearized: list[Linearized] = []
    unsupported: list[str] = []
    for index, op in enumerate(source.ops):
        operands = tuple(
            made.get(read, read) if isinstance(read, relax.Var) else read for read in op.operands
        )
        needs = tuple(read in active for read in op.operands)
        random = None if randomness is None else randomness.key(index)
        site = Site(op, operands, needs, random)
        try:
            rule = rules.get(op.op, _without_rule)
            emitted = rule(emitter, site)
        except UnsupportedModelError as error:
            unsupported.append(str(error))
            emitted = _without_rule(emitter, site)
        linearized.append(emitted)
        made.update(zip(op.results, emitted.outputs, strict=True))
    if unsupported:
        raise UnsupportedModelError(f"{'; '.join(unsupported)}; {GRADIENT_ADVICE}")
    outputs = tuple(made.get(output, output) for output in source.outputs)
    updates = tuple(pair for one in linearized for pair in one.updates)
    writes = tuple((param, made.get(value, value)) for param, value in source.writes)
    return Tape(outputs, updates, writes, source, tuple(linearized), frozenset(active))


def active_variables(source: ForwardOps, trainable: Collection[relax.Var]) -> set[relax.Var]:
    """The variables that depend on a trainable parameter in a differentiable way."""
    active = set(trainable)
    for op in source.ops:
        if op.op not in WITHOUT_GRADIENT and any(read in active for read in op.operands):
            active.update(result for result in op.results if _is_float(result))
    return active


def _reaching(source: ForwardOps) -> set[relax.Var]:
    """The variables that an output depends on in a differentiable way.

    What only the new value of a buffer depends on needs no gradient.
    """
    reaching = {output for output in source.outputs if isinstance(output, relax.Var)}
    for op in reversed(source.ops):
        if op.op not in WITHOUT_GRADIENT and any(result in reaching for result in op.results):
            reaching.update(read for read in op.operands if isinstance(read, relax.Var))
    return reaching


def blocking_ops(source: ForwardOps, active: Collection[relax.Var]) -> list[ForwardOp]:
    """The ops whose derivative is zero or undefined, though they read an active variable."""
    return [
        op
        for op in source.ops
        if op.op in WITHOUT_GRADIENT and any(read in active for read in op.operands)
    ]


def check_differentiable(source: ForwardOps, active: Collection[relax.Var]) -> None:
    """Raise an error that names all ops without a gradient on the way from a parameter."""
    rules = gradient_rules()
    missing = [
        op
        for op in source.ops
        if op.op not in rules
        and op.op not in WITHOUT_GRADIENT
        and any(read in active for read in op.operands)
        and any(_is_float(result) for result in op.results)
    ]
    if missing:
        places = located((op.op, op.name) for op in missing)
        raise MissingGradientError(
            f"{len(missing)} ops of the model have no gradient: {places}; {GRADIENT_ADVICE}"
        )


def _note_origin(emitter: Emitter, operand: relax.Var, gradient: relax.Expr, op: ForwardOp) -> None:
    """Say which op a gradient that is named after a shared parameter comes from."""
    if gradient.name.startswith(f"{operand.name}_grad"):
        emitter.origins[gradient.name] = op.name


class _Gradients:
    """Gradients of the variables still to be visited, summed when several ops read one."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._pending: dict[relax.Var, relax.Expr] = {}
        self._parts: dict[relax.Var, list[PartGradient]] = {}

    def add(self, var: relax.Var, gradient: relax.Expr | PartGradient) -> None:
        if isinstance(gradient, PartGradient):
            self._parts.setdefault(var, []).append(gradient)
            return
        if var in self._pending:
            total = relax.op.add(self._pending[var], gradient)
            gradient = self._emitter.bind(total, f"{var.name}_grad_sum")
        self._pending[var] = gradient

    def take(self, var: relax.Var) -> relax.Expr | None:
        parts = self._parts.pop(var, [])
        for whole in assembled(self._emitter, parts, shape_of(var)):
            self.add(var, whole)
        return self._pending.pop(var, None)


def _without_rule(emitter: Emitter, site: Site) -> Linearized:
    outputs = site.emit(emitter)
    return Linearized(outputs, lambda _gradients: (None,) * len(site.operands))


def _first_reads(source: ForwardOps, active: Collection[relax.Var]) -> dict[int, list[relax.Var]]:
    """For each op, the active parameters that no earlier op reads."""
    seen: set[relax.Var] = set()
    first: dict[int, list[relax.Var]] = {}
    params = set(source.params) & set(active)
    for index, op in enumerate(source.ops):
        for read in op.operands:
            if read in params and read not in seen:
                seen.add(read)
                first.setdefault(index, []).append(read)
    return first


def _shared(source: ForwardOps) -> frozenset[relax.Var]:
    """The parameters that several ops read; their gradients are named after all of them."""
    reads = Counter(read for op in source.ops for read in set(op.operands))
    return frozenset(param for param in source.params if reads[param] > 1)


def _is_float(var: relax.Var) -> bool:
    return "float" in str(var.ty.dtype)
