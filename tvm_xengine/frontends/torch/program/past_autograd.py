"""What a forward pass does to tensors without autograd's knowledge."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx
from torch.export import ExportedProgram

DETACH = torch.ops.aten.detach.default
DETACH_IN_PLACE = torch.ops.aten.detach_.default
GRADIENTS_ENABLED = torch.ops.higher_order.wrap_with_set_grad_enabled


def silent_writes(program: ExportedProgram) -> list[fx.Node]:
    """Nodes that write in place to tensors of the gradient's graph, and that autograd does not see.

    Under ``torch.no_grad`` or through ``detach()`` the gradient stays that of the former values, which
    a program without mutation cannot say. Writes to parameters are left out.
    """
    signature, state = program.graph_signature, program.state_dict
    walk = _Walk()
    names = signature.inputs_to_parameters
    given = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            target = names.get(node.name)
            needs = target in state and state[target].requires_grad
            given.append(walk.fresh(needs_gradient=needs, is_parameter=target is not None))
    walk.run(program.graph_module, given, enabled=True)
    return walk.found


@dataclass(frozen=True)
class _Tensor:
    """A view of a storage; `is_detached` where gradients do not go through it."""

    storage: int
    is_detached: bool = False


_Value = _Tensor | list["_Value"] | None


@dataclass
class _Walk:
    """Follows which storages need a gradient."""

    needs_gradient: list[bool] = field(default_factory=list)
    parameters: set[int] = field(default_factory=set)
    found: list[fx.Node] = field(default_factory=list)

    def fresh(self, *, needs_gradient: bool, is_parameter: bool = False) -> _Tensor:
        """A storage of its own."""
        self.needs_gradient.append(needs_gradient)
        made = _Tensor(len(self.needs_gradient) - 1)
        if is_parameter:
            self.parameters.add(made.storage)
        return made

    def run(self, module: fx.GraphModule, given: Sequence[_Value], *, enabled: bool) -> _Value:
        """Walk the nodes of a graph; returns what it returns."""
        values: dict[fx.Node, _Value] = {}
        inputs = iter(given)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(inputs)
            elif node.op == "output":
                return _mapped(node.args[0], values)
            elif node.target is GRADIENTS_ENABLED:
                is_on, inner, *arguments = node.args
                part = getattr(module, inner.target)
                read = [_mapped(one, values) for one in arguments]
                values[node] = self.run(part, read, enabled=bool(is_on))
            elif node.op == "call_function":
                values[node] = self._called(node, values, enabled=enabled)
        return None

    def _called(self, node: fx.Node, values: Mapping[fx.Node, _Value], *, enabled: bool) -> _Value:
        first = _mapped(node.args[0], values) if node.args else None
        if node.target is operator.getitem and isinstance(first, list):
            return first[int(node.args[1])]
        if node.target is operator.getitem:
            return first
        if node.target is DETACH_IN_PLACE:
            return self.fresh(needs_gradient=False)
        read = [values.get(one) for one in node.all_input_nodes]
        needs = enabled and any(self._needs(one) for one in read if isinstance(one, _Tensor))
        schema = getattr(node.target, "_schema", None)
        if schema is None or not isinstance(first, _Tensor):
            return self.fresh(needs_gradient=needs)
        if torch.Tag.inplace_view in node.target.tags:  # another shape of the same values
            return first
        if schema.is_mutable:
            self._written(node, first, needs=needs, enabled=enabled)
            return first
        if any(one.alias_info is not None for one in schema.returns):
            is_detached = first.is_detached or node.target is DETACH
            return _Tensor(first.storage, is_detached)
        return self.fresh(needs_gradient=needs)

    def _needs(self, value: _Tensor) -> bool:
        return self.needs_gradient[value.storage] and not value.is_detached

    def _written(self, node: fx.Node, target: _Tensor, *, needs: bool, enabled: bool) -> None:
        past = target.is_detached or not enabled
        if past and self.needs_gradient[target.storage] and target.storage not in self.parameters:
            self.found.append(node)
        elif needs:
            self.needs_gradient[target.storage] = True


def _mapped(argument: object, values: Mapping[fx.Node, _Value]) -> _Value:
    if isinstance(argument, fx.Node):
        return values.get(argument)
    if isinstance(argument, list | tuple):
        return [_mapped(one, values) for one in argument]
    return None
