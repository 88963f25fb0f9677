"""Cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode


def _scan(operator: Callable[..., relax.Expr], node: OnnxNode) -> relax.Expr:
    axis = node.value(1, "the axis")
    if axis is None:
        raise UnsupportedModelError("the axis must be given")
    along = int(axis.reshape(())) % len(node.shape())
    exclusive, reverse = bool(node.integer("exclusive", 0)), bool(node.integer("reverse", 0))
    x = node.input(0)
    x = node.emit(relax.op.flip(x, along)) if reverse else x
    y = node.emit(operator(x, along, node.dtype(), exclusive))
    return node.emit(relax.op.flip(y, along)) if reverse else y


def cumulative_sum(node: OnnxNode) -> relax.Expr:
    """Sums of the elements up to each place, or from it on."""
    return _scan(relax.op.cumsum, node)


def cumulative_product(node: OnnxNode) -> relax.Expr:
    """Products of the elements up to each place, or from it on."""
    return _scan(relax.op.cumprod, node)


CONVERTERS: dict[str, Converter] = {"CumProd": cumulative_product, "CumSum": cumulative_sum}
