"""Recurrent layers of ONNX, unrolled over their steps.

The formulas are those of ONNX's operators LSTM, GRU and RNN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode
from tvm_xengine.relax_ir.types import constant_value, static_shape

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
    peepholes
        Weights (hidden,) of the memory in the gates in, out and keep of an LSTM; often none.
    squash
        The activations, in the order of the operator.
    """

    builder: relax.BlockBuilder
    recurrent: relax.Expr
    input_bias: relax.Expr | None
    recurrent_bias: relax.Expr | None
    squash: tuple[Squash, ...]
    resets_last: bool
    peepholes: tuple[relax.Expr, ...] = ()

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


def lstm(node: OnnxNode) -> relax.Expr:
    """All hidden states, the last one and the last cell state."""
    return _layer(node, 4, ("Sigmoid", "Tanh", "Tanh"), 2, _lstm_step)


def gru(node: OnnxNode) -> relax.Expr:
    """All hidden states and the last one."""
    return _layer(node, 3, ("Sigmoid", "Tanh"), 1, _gru_step)


def rnn(node: OnnxNode) -> relax.Expr:
    """All hidden states and the last one."""
    return _layer(node, 1, ("Tanh",), 1, _rnn_step)


def _lstm_step(cell: _Cell, from_input: relax.Expr, state: State) -> State:
    hidden, memory = state
    into, out, keep, new = cell.parts(cell.gates(from_input, hidden), 4)
    open_, change, show = cell.squash
    if cell.peepholes:
        into, keep = (
            cell.emit(relax.op.add(gate, cell.emit(relax.op.multiply(cell.peepholes[k], memory))))
            for gate, k in ((into, 0), (keep, 2))
        )
    kept = cell.emit(relax.op.multiply(cell.emit(open_(keep)), memory))
    added = cell.emit(relax.op.multiply(cell.emit(open_(into)), cell.emit(change(new))))
    memory = cell.emit(relax.op.add(kept, added))
    if cell.peepholes:
        out = cell.emit(relax.op.add(out, cell.emit(relax.op.multiply(cell.peepholes[1], memory))))
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
    node: OnnxNode,
    gates: int,
    squash: tuple[str, ...],
    states: int,
    step: Callable[[_Cell, relax.Expr, State], State],
) -> relax.Expr:
    """A layer in all its directions.

    Its inputs are the sequence (steps, batch, features), W (directions, gates * hidden, features),
    R (directions, gates * hidden, hidden), B (directions, 2 * gates * hidden), the lengths, the
    first states (directions, batch, hidden) and P (directions, 3 * hidden). With the attribute
    layout = 1 the batch is the first axis of the sequence and of the states.

    Parameters
    ----------
    squash
        The operator's default activations of one direction.
    states
        Number of tensors that go from step to step.
    """
    batch_first = bool(node.integer("layout", 0))
    sequence, *first = (
        _swapped(node, value) if batch_first and value is not None else value
        for value in (node.input(0), *(node.optional(5 + k) for k in range(states)))
    )
    steps, batch, features = static_shape(sequence.ty)
    directions, _, hidden = node.shape(2)
    names = _activations(node, squash * directions)
    _refuse_rest(node, steps)

    def of(value: relax.Expr | None, direction: int) -> relax.Expr | None:
        if value is None:
            return None
        shape = static_shape(value.ty)
        end = direction + 1
        part = relax.op.strided_slice(value, axes=[0], begin=[direction], end=[end])
        part = value if directions == 1 else node.emit(part)
        return node.emit(relax.op.reshape(part, shape[1:]))

    seen, last = [], []
    for direction in range(directions):
        cell = _cell(node, of, direction, names[direction * len(squash) :][: len(squash)])
        rows = node.emit(relax.op.reshape(sequence, (steps * batch, features)))
        weights = of(node.input(1), direction)
        assert weights is not None
        order = list(enumerate(cell.parts(cell.product(rows, weights), steps, axis=0)))
        if direction or node.text("direction", "forward") == "reverse":
            order.reverse()
        state = tuple(
            _first_state(of(value, direction), (batch, hidden), str(sequence.ty.dtype))
            for value in first
        )
        made: dict[int, relax.Expr] = {}
        for k, row in order:
            state = step(cell, row, state)
            made[k] = state[0]
        seen.append(node.emit(relax.op.stack([made[k] for k in range(steps)], axis=0)))
        last.append(state)
    ends = [node.emit(relax.op.stack([state[k] for state in last], axis=0)) for k in range(states)]
    if batch_first:
        over_time = node.emit(relax.op.stack(seen, axis=0))  # (directions, steps, batch, hidden)
        over_time = node.emit(relax.op.permute_dims(over_time, (2, 1, 0, 3)))
        return relax.Tuple([over_time, *(_swapped(node, end) for end in ends)])
    return relax.Tuple([node.emit(relax.op.stack(seen, axis=1)), *ends])


def _cell(
    node: OnnxNode,
    of: Callable[[relax.Expr | None, int], relax.Expr | None],
    direction: int,
    squash: tuple[Squash, ...],
) -> _Cell:
    bias, peepholes = of(node.optional(3), direction), of(node.optional(7), direction)
    recurrent = of(node.input(2), direction)
    assert recurrent is not None
    biases = [None, None] if bias is None else _parts(node, bias, 2)
    return _Cell(
        node.builder,
        recurrent,
        biases[0],
        biases[1],
        squash,
        resets_last=bool(node.integer("linear_before_reset", 0)),
        peepholes=() if peepholes is None else tuple(_parts(node, peepholes, 3)),
    )


def _parts(node: OnnxNode, value: relax.Expr, count: int) -> list[relax.Expr]:
    made = node.emit(relax.op.split(value, count, axis=0))
    return [node.emit(relax.TupleGetItem(made, k)) for k in range(count)]


def _swapped(node: OnnxNode, value: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.permute_dims(value, (1, 0, 2)))


def _first_state(value: relax.Expr | None, shape: tuple[int, int], dtype: str) -> relax.Expr:
    return relax.const(np.zeros(shape, dtype), dtype) if value is None else value


def _activations(node: OnnxNode, default: tuple[str, ...]) -> tuple[Squash, ...]:
    given = node.attributes.get("activations", default)
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in given]  # type: ignore[attr-defined]
    if unknown := sorted(set(names) - set(_SQUASH)):
        raise UnsupportedModelError(f"activations {unknown}; known are {sorted(_SQUASH)}")
    return tuple(_SQUASH[name] for name in names)


def _refuse_rest(node: OnnxNode, steps: int) -> None:
    """Refuse what is rare, by name."""
    lengths = node.optional(4)
    if lengths is not None:
        known = constant_value(lengths)
        if known is None or (known != steps).any():
            raise UnsupportedModelError(
                f"sequences of several lengths; all must have {steps} steps"
            )
    for name in ("clip", "input_forget"):
        if node.attributes.get(name):
            raise UnsupportedModelError(
                f"attribute {name} = {node.attributes[name]}; only 0 is known"
            )


CONVERTERS: dict[str, Converter] = {"GRU": gru, "LSTM": lstm, "RNN": rnn}
