"""Steps of optimizers that stand in a training graph (ai.onnx.preview.training)."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal

_Step = Callable[[OnnxNode, "relax.Expr", "relax.Expr", "list[relax.Expr]"], "list[relax.Expr]"]


def _each(node: OnnxNode, states: int, step: _Step) -> relax.Expr:
    """One step for each tensor of inputs R, T, X..., G..., and `states` states of each tensor.

    `step` returns the new tensor and the new states.
    """
    width = 2 + states
    count = (len(node.inputs) - 2) // width
    made = []
    for k in range(count):
        x, gradient, *state = (node.input(2 + part * count + k) for part in range(width))
        decay = literal(node.number("norm_coefficient", 0.0), str(x.ty.dtype))
        regular = node.emit(relax.op.add(relax.op.multiply(decay, x), gradient))
        made.append([node.emit(one) for one in step(node, x, regular, list(state))])
    return relax.Tuple([one[part] for part in range(1 + states) for one in made])


def _rate(node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return relax.op.astype(node.input(0), str(x.ty.dtype))


def _after_first(node: OnnxNode, later: relax.Expr, first: relax.Expr) -> relax.Expr:
    return relax.op.where(relax.op.greater(node.input(1), literal(0, "int64")), later, first)


def adagrad(node: OnnxNode) -> relax.Expr:
    """Adagrad's new tensors and sums of squares."""
    return _each(node, 1, _adagrad)


def _adagrad(
    node: OnnxNode, x: relax.Expr, gradient: relax.Expr, state: list[relax.Expr]
) -> list[relax.Expr]:
    dtype = str(x.ty.dtype)
    decay = literal(node.number("decay_factor", 0.0), dtype)
    step = relax.op.astype(node.input(1), dtype)
    rate = relax.op.divide(
        _rate(node, x), relax.op.add(literal(1.0, dtype), relax.op.multiply(step, decay))
    )
    squares = relax.op.add(state[0], relax.op.multiply(gradient, gradient))
    root = relax.op.add(relax.op.sqrt(squares), literal(node.number("epsilon", 1e-6), dtype))
    change = relax.op.divide(relax.op.multiply(rate, gradient), root)
    return [relax.op.subtract(x, change), squares]


def adam(node: OnnxNode) -> relax.Expr:
    """Adam's new tensors and both moments."""
    return _each(node, 2, _adam)


def _adam(
    node: OnnxNode, x: relax.Expr, gradient: relax.Expr, state: list[relax.Expr]
) -> list[relax.Expr]:
    dtype = str(x.ty.dtype)
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)

    def mixed(old: relax.Expr, weight: float, new: relax.Expr) -> relax.Expr:
        kept = relax.op.multiply(literal(weight, dtype), old)
        return relax.op.add(kept, relax.op.multiply(literal(1 - weight, dtype), new))

    def missing(weight: float) -> relax.Expr:
        step = relax.op.astype(node.input(1), dtype)
        return relax.op.subtract(literal(1.0, dtype), relax.op.power(literal(weight, dtype), step))

    first = node.emit(mixed(state[0], alpha, gradient))
    second = node.emit(mixed(state[1], beta, relax.op.multiply(gradient, gradient)))
    root = relax.op.add(relax.op.sqrt(second), literal(node.number("epsilon", 1e-6), dtype))
    rate = _rate(node, x)
    corrected = relax.op.divide(
        relax.op.multiply(rate, relax.op.sqrt(missing(beta))), missing(alpha)
    )
    rate = _after_first(node, corrected, rate)
    stepped = relax.op.subtract(x, relax.op.divide(relax.op.multiply(rate, first), root))
    after = literal(1 - node.number("norm_coefficient_post", 0.0), dtype)
    return [relax.op.multiply(after, stepped), first, second]


def momentum(node: OnnxNode) -> relax.Expr:
    """New tensors and velocities of gradient descent with (Nesterov's) momentum."""
    return _each(node, 1, _momentum)


def _momentum(
    node: OnnxNode, x: relax.Expr, gradient: relax.Expr, state: list[relax.Expr]
) -> list[relax.Expr]:
    dtype = str(x.ty.dtype)
    alpha = literal(node.number("alpha", 0.0), dtype)
    one = literal(1.0, dtype)
    beta = _after_first(node, literal(node.number("beta", 1.0), dtype), one)
    velocity = node.emit(
        relax.op.add(relax.op.multiply(alpha, state[0]), relax.op.multiply(beta, gradient))
    )
    direction = velocity
    if node.text("mode", "standard") == "nesterov":
        direction = relax.op.add(gradient, relax.op.multiply(alpha, velocity))
    return [relax.op.subtract(x, relax.op.multiply(_rate(node, x), direction)), velocity]


CONVERTERS: dict[str, Converter] = {"Adagrad": adagrad, "Adam": adam, "Momentum": momentum}
