"""PyTorch's rules for operands of different element types, written as conversions."""

from __future__ import annotations

import torch
from torch import fx
from torch.fx.node import map_aggregate

_CHOOSING = frozenset(["condition", "mask"])
"""Arguments that say which element is taken, and are no operands."""

_CONVERTING_FIRST = frozenset(
    [
        "sum",
        "mean",
        "prod",
        "cat",
        "cumsum",
        "cumprod",
        "stack",
        "softmax",
        "log_softmax",
        "_softmax",
        "_log_softmax",
    ]
)
"""Operators, other than elementwise ones, that convert their operands to the type they return."""


_WITH_WHOLE_NUMBERS = frozenset(["mul", "div", "leaky_relu"])
"""Operators whose kernels for short floats take a second operand of one number as it is."""

_SUMS = frozenset(["add", "sub", "rsub"])
"""Operators whose kernels for short floats multiply and add in float32, by numbers of the short type."""

_WITH_SHORT_NUMBERS = frozenset(["clamp", "clamp_min", "clamp_max", "hardshrink", "pow"])
"""Operators whose kernels for short floats round numbers, which ours would take as they are."""

_SHORT = frozenset([torch.float16, torch.bfloat16])


def convert_operands(graph: fx.Graph) -> None:
    """Put a conversion before each operand that is not of the type that PyTorch computes with.

    .. code-block:: python

        y = aten.mul(int64_tensor, 0.01)

    becomes

    .. code-block:: python

        y = aten.mul(aten._to_copy(int64_tensor, dtype=float32), 0.01)

    An elementwise operator computes with the type that it returns, a comparison with that of both
    its sides together: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
    Products of a short type with a number are float32's, rounded, as on PyTorch's CPU.
    """
    for node in list(graph.nodes):
        dtype = _computed_with(node)
        if dtype in _SHORT:
            if _name(node) in _WITH_SHORT_NUMBERS | _SUMS:
                _shorten_numbers(node, dtype)
            if _is_wide(node, dtype):
                node, dtype = _rounded(graph, node), torch.float32
        if dtype is not None:
            _convert(graph, node, dtype)


def _name(node: fx.Node) -> str:
    return str(node.target._schema.name.removeprefix("aten::"))


def _computed_with(node: fx.Node) -> torch.dtype | None:
    """The element type that an operator converts its operands to; None for those that do not."""
    value = node.meta.get("val")
    if not isinstance(node.target, torch._ops.OpOverload) or not isinstance(value, torch.Tensor):
        return None
    name = _name(node)
    if name in _CONVERTING_FIRST:
        return value.dtype
    if torch.Tag.pointwise not in node.target.tags or name in ("_to_copy", "to"):
        return None
    if value.dtype is not torch.bool:
        return value.dtype
    sides = [one.meta["val"] if isinstance(one, fx.Node) else one for one in node.args[:2]]
    is_comparison = len(sides) == 2 and not name.startswith(("logical_", "bitwise_"))
    return torch.result_type(*sides) if is_comparison else None


def _is_wide(node: fx.Node, dtype: torch.dtype) -> bool:
    """Whether float32 computes another result than a short type."""
    name = _name(node)
    if name in _SUMS:
        return bool(node.kwargs.get("alpha", 1) != 1)
    number = node.args[1] if name in _WITH_WHOLE_NUMBERS and len(node.args) > 1 else None
    if isinstance(number, fx.Node):
        value = number.meta["val"]
        return isinstance(value, torch.Tensor) and not value.ndim and value.dtype is not dtype
    return number is not None and _shortened(number, dtype) != number


def _shortened(number: object, dtype: torch.dtype) -> object:
    if not isinstance(number, float | int):
        return number
    return torch.tensor(number, dtype=torch.float64).to(dtype).item()


def _shorten_numbers(node: fx.Node, dtype: torch.dtype) -> None:
    node.args, node.kwargs = (
        map_aggregate(one, lambda number: _shortened(number, dtype))
        for one in (node.args, node.kwargs)
    )


def _rounded(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """A new node that computes in float32; the given one, whose name others know, rounds its result."""
    value = node.meta["val"]
    with graph.inserting_before(node):
        wide = graph.call_function(node.target, node.args, node.kwargs)
    wide.meta = {**node.meta, "val": value.float()}
    node.target = torch.ops.aten._to_copy.default
    node.args, node.kwargs = (wide,), {"dtype": value.dtype}
    return wide


def _convert(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> None:
    names = [argument.name for argument in node.target._schema.arguments]
    converted: dict[fx.Node, fx.Node] = {}

    def of_type(operand: fx.Node) -> fx.Node:
        value = operand.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dtype is dtype:
            return operand
        if operand not in converted:
            with graph.inserting_before(node):
                copy = graph.call_function(
                    torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype}
                )
            copy.meta = {**node.meta, "val": value.to(dtype)}
            converted[operand] = copy
        return converted[operand]

    node.args = tuple(
        argument if name in _CHOOSING else fx.map_arg(argument, of_type)
        for name, argument in zip(names, node.args, strict=False)
    )
    node.kwargs = {
        name: argument if name in _CHOOSING else fx.map_arg(argument, of_type)
        for name, argument in node.kwargs.items()
    }
