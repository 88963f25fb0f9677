"""Recurrent layers of ONNX, unrolled over their steps.

The formulas are those of ONNX's operators LSTM, GRU and RNN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.inputs import Attributes, Inputs, given, padded
from tvm_xengine.relax_ir.types import static_shape

Squash = Callable[[relax.Expr], relax.Expr]
State = tuple[relax.Expr, ...]

_SQUASH: dict[str, Squash] = {
    "Sigmoid": relax.op.sigmoid,
    "Tanh": relax.op.tanh,
    "Relu": relax.op.nn.relu,
}


@dataclass(frozen=True)
class _Cell:
    """What one step of a layer computes, in one direction.

    Attributes
    ----------
    recurrent
        Weights (gates * hidden, hidden) of the hidden state.
    input_bias, recurrent_bias
        (gates * hidden,); None where the layer has no biases.
    squash
        The activations, in the order of the operator.
    """

    builder: relax.BlockBuilder
    recurrent: relax.Expr
    input_bias: relax.Expr | None
    recurrent_bias: relax.Expr | None
    squash: tuple[Squash, ...]
    resets_last: bool

    def emit(self, value: relax.Expr) -> relax.Expr:
        return self.builder.emit(value)

    def parts(self, value: relax.Expr, count: int, axis: int = 1) -> list[relax.Expr]:
        """Equal parts along an axis."""
        if count == 1:
            return [value]
        made = self.emit(relax.op.split(value, count, axis=axis))
        return [self.emit(relax.TupleGetItem(made, k)) for k in range(count)]

    def product(self, left: relax.Expr, right: relax.Expr) -> relax.Expr:
        """left @ right.T."""
        return self.emit(relax.op.matmul(left, self.emit(relax.op.permute_dims(right, (1, 0)))))

    def gates(self, from_input: relax.Expr, hidden: relax.Expr) -> relax.Expr:
        """What goes into the activations of all gates."""
        sum_ = self.emit(relax.op.add(from_input, self.product(hidden, self.recurrent)))
        for bias in (self.input_bias, self.recurrent_bias):
            sum_ = sum_ if bias is None else self.emit(relax.op.add(sum_, bias))
        return sum_


def lstm(builder: relax.BlockBuilder, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """All hidden states, the last one and the last cell state."""
    return _layer(builder, inputs, attributes, 4, ("Sigmoid", "Tanh", "Tanh"), 2, _lstm_step)


def gru(builder: relax.BlockBuilder, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """All hidden states and the last one."""
    return _layer(builder, inputs, attributes, 3, ("Sigmoid", "Tanh"), 1, _gru_step)


def rnn(builder: relax.BlockBuilder, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """All hidden states and the last one."""
    return _layer(builder, inputs, attributes, 1, ("Tanh",), 1, _rnn_step)


def _lstm_step(cell: _Cell, from_input: relax.Expr, state: State) -> State:
    hidden, memory = state
    into, out, keep, new = cell.parts(cell.gates(from_input, hidden), 4)
    open_, change, show = cell.squash
    kept = cell.emit(relax.op.multiply(cell.emit(open_(keep)), memory))
    added = cell.emit(relax.op.multiply(cell.emit(open_(into)), cell.emit(change(new))))
    memory = cell.emit(relax.op.add(kept, added))
    shown = cell.emit(show(memory))
    return cell.emit(relax.op.multiply(cell.emit(open_(out)), shown)), memory


def _gru_step(cell: _Cell, from_input: relax.Expr, state: State) -> State:
    (hidden,) = state
    open_, change = cell.squash
    given = cell.parts(_plus(cell, from_input, cell.input_bias), 3)
    weights = cell.parts(cell.recurrent, 3, axis=0)
    biases: list[relax.Expr | None] = [None] * 3
    if cell.recurrent_bias is not None:
        biases = [*cell.parts(cell.recurrent_bias, 3, axis=0)]

    def recalled(gate: int, read: relax.Expr) -> relax.Expr:
        return _plus(cell, cell.product(read, weights[gate]), biases[gate])

    keep, reset = (
        cell.emit(open_(cell.emit(relax.op.add(given[gate], recalled(gate, hidden)))))
        for gate in (0, 1)
    )
    if cell.resets_last:
        past = cell.emit(relax.op.multiply(reset, recalled(2, hidden)))
    else:
        past = recalled(2, cell.emit(relax.op.multiply(reset, hidden)))
    new = cell.emit(change(cell.emit(relax.op.add(given[2], past))))
    # (1 - keep) * new + keep * hidden
    distance = cell.emit(relax.op.subtract(hidden, new))
    return (cell.emit(relax.op.add(new, cell.emit(relax.op.multiply(keep, distance)))),)


def _rnn_step(cell: _Cell, from_input: relax.Expr, state: State) -> State:
    (hidden,) = state
    (squash,) = cell.squash
    return (cell.emit(squash(cell.gates(from_input, hidden))),)


def _plus(cell: _Cell, value: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    return value if bias is None else cell.emit(relax.op.add(value, bias))


def _layer(
    builder: relax.BlockBuilder,
    inputs: Inputs,
    attributes: Attributes,
    gates: int,
    squash: tuple[str, ...],
    states: int,
    step: Callable[[_Cell, relax.Expr, State], State],
) -> relax.Expr:
    """A layer in all its directions.

    Parameters
    ----------
    inputs
        The sequence (steps, batch, features), W (directions, gates * hidden, features),
        R (directions, gates * hidden, hidden), B (directions, 2 * gates * hidden), lengths, and
        the first states (directions, batch, hidden).
    squash
        The operator's default activations of one direction.
    states
        Number of tensors that go from step to step.
    """
    every = padded(inputs, 8)
    sequence, weights, recurrent = (given(value) for value in every[:3])
    steps, batch, features = static_shape(sequence.ty)
    directions, _, hidden = static_shape(recurrent.ty)
    names = _activations(attributes, squash * directions)
    _refuse_rest(every, attributes, steps)

    def of(value: relax.Expr | None, direction: int) -> relax.Expr | None:
        if value is None:
            return None
        shape = static_shape(value.ty)
        end = direction + 1
        part = relax.op.strided_slice(value, axes=[0], begin=[direction], end=[end])
        part = value if directions == 1 else builder.emit(part)
        return builder.emit(relax.op.reshape(part, shape[1:]))

    seen, last = [], []
    for direction in range(directions):
        bias = of(every[3], direction)
        biases = [None, None] if bias is None else builder.emit(relax.op.split(bias, 2, axis=0))
        cell = _Cell(
            builder,
            given(of(recurrent, direction)),
            None if bias is None else builder.emit(biases[0]),
            None if bias is None else builder.emit(biases[1]),
            names[direction * len(squash) : (direction + 1) * len(squash)],
            resets_last=bool(attributes.get("linear_before_reset", 0)),
        )
        rows = builder.emit(relax.op.reshape(sequence, (steps * batch, features)))
        from_input = cell.product(rows, given(of(weights, direction)))
        order = list(enumerate(cell.parts(from_input, steps, axis=0)))
        if direction or attributes.get("direction") == b"reverse":
            order.reverse()
        state = tuple(
            _first_state(of(value, direction), (batch, hidden), str(sequence.ty.dtype))
            for value in every[5 : 5 + states]
        )
        made: dict[int, relax.Expr] = {}
        for k, row in order:
            state = step(cell, row, state)
            made[k] = state[0]
        seen.append(builder.emit(relax.op.stack([made[k] for k in range(steps)], axis=0)))
        last.append(state)
    over_time = builder.emit(relax.op.stack(seen, axis=1))
    ends = [
        builder.emit(relax.op.stack([state[k] for state in last], axis=0)) for k in range(states)
    ]
    return relax.Tuple([over_time, *ends])


def _first_state(value: relax.Expr | None, shape: tuple[int, int], dtype: str) -> relax.Expr:
    return relax.const(np.zeros(shape, dtype), dtype) if value is None else value


def _activations(attributes: Attributes, default: tuple[str, ...]) -> tuple[Squash, ...]:
    given = attributes.get("activations", default)
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in given]  # type: ignore[attr-defined]
    if unknown := sorted(set(names) - set(_SQUASH)):
        raise UnsupportedModelError(f"activations {unknown}; known are {sorted(_SQUASH)}")
    return tuple(_SQUASH[name] for name in names)


def _refuse_rest(inputs: Inputs, attributes: Attributes, steps: int) -> None:
    """Refuse what is rare, by name."""
    lengths = inputs[4]
    if lengths is not None and not (
        isinstance(lengths, tvm.ir.GenericConst) and (lengths.value.numpy() == steps).all()
    ):
        raise UnsupportedModelError(f"sequences of several lengths; all must have {steps} steps")
    if inputs[7] is not None:
        raise UnsupportedModelError("peepholes; export the layer without them")
    for name in ("clip", "layout", "input_forget"):
        if attributes.get(name):
            raise UnsupportedModelError(f"attribute {name} = {attributes[name]}; only 0 is known")
