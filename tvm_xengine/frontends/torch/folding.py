"""Values that depend on constants only, computed by PyTorch before the step is made."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from tvm_xengine.frontends.torch.program.nodes import op_name


class Folding:
    """What is known of the values of a program's nodes.

    Attributes
    ----------
    folded
        Names of the tensors whose values went into what was computed.
    """

    def __init__(self) -> None:
        self.folded: set[str] = set()
        self._values: dict[fx.Node, torch.Tensor] = {}
        self._names_in: dict[fx.Node, frozenset[str]] = {}

    def know(self, node: fx.Node, name: str, value: torch.Tensor) -> None:
        """A tensor that is never written holds this value."""
        self._values[node] = value
        self._names_in[node] = frozenset([name])

    def computed(self, node: fx.Node) -> torch.Tensor | list[torch.Tensor] | None:
        """What PyTorch computes for a node that depends on known values only, else None."""
        if not _is_fixed(node) or not all(map(self._is_known, node.all_input_nodes)):
            return None
        expected = node.meta.get("val")
        if isinstance(expected, torch.Tensor):
            value: torch.Tensor = self._run(node)
            self._values[node] = value
            return value
        if not isinstance(expected, tuple | list) or not node.all_input_nodes:
            return None
        if node.target is operator.getitem:
            return None
        values = self._run(node)  # such as the variance and mean of no elements
        are_tensors = all(isinstance(one, torch.Tensor) and one.numel() for one in values)
        return list(values) if are_tensors else None

    def _run(self, node: fx.Node) -> Any:
        """What PyTorch computes from values that are known."""
        names = (self._names_in.get(read, frozenset()) for read in node.all_input_nodes)
        self._names_in[node] = frozenset[str]().union(*names)
        self.folded |= self._names_in[node]
        arguments, named = fx.map_arg((node.args, node.kwargs), self._value)
        return node.target(*arguments, **named)

    def _is_known(self, node: fx.Node) -> bool:
        """Whether a tensor's values are known; a tensor without elements has none to know."""
        value = node.meta.get("val")
        return node in self._values or (isinstance(value, torch.Tensor) and value.numel() == 0)

    def _value(self, node: fx.Node) -> torch.Tensor:
        if node in self._values:
            return self._values[node]
        value = node.meta["val"]
        return torch.empty(value.shape, dtype=value.dtype)


def _is_fixed(node: fx.Node) -> bool:
    """Whether PyTorch gives the same values each time: nothing is drawn, or left unwritten."""
    is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return not is_random and not op_name(node).removeprefix("new_").startswith("empty")
