"""PyTorch's rules for operands of different element types, written as conversions."""

from __future__ import annotations

import torch
from torch import fx

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


def convert_operands(graph: fx.Graph) -> None:
    """Put a conversion before each operand that is not of the type that PyTorch computes with.

    .. code-block:: python

        y = aten.mul(int64_tensor, 0.01)

    becomes

    .. code-block:: python

        y = aten.mul(aten._to_copy(int64_tensor, dtype=float32), 0.01)

    An elementwise operator computes with the type that it returns, a comparison with that of both
    its sides together: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
    """
    for node in list(graph.nodes):
        if (dtype := _computed_with(node)) is not None:
            _convert(graph, node, dtype)


def _computed_with(node: fx.Node) -> torch.dtype | None:
    """The element type that an operator converts its operands to; None for those that do not."""
    value = node.meta.get("val")
    if not isinstance(node.target, torch._ops.OpOverload) or not isinstance(value, torch.Tensor):
        return None
    name = node.target._schema.name.removeprefix("aten::")
    if name in _CONVERTING_FIRST:
        return value.dtype
    if torch.Tag.pointwise not in node.target.tags or name in ("_to_copy", "to"):
        return None
    if value.dtype is not torch.bool:
        return value.dtype
    sides = [one.meta["val"] if isinstance(one, fx.Node) else one for one in node.args[:2]]
    is_comparison = len(sides) == 2 and not name.startswith(("logical_", "bitwise_"))
    return torch.result_type(*sides) if is_comparison else None


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
