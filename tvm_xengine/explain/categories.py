"""What bytes are told apart by: parameters, optimizer state, activations, gradients and so on."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_xengine.scheduling.graph import OpGraph, Role

_OF_ROLE = {
    Role.PARAMETER: "parameters",
    Role.OPTIMIZER_STATE: "optimizer state",
    Role.STATISTIC: "statistics",
    Role.CONSTANT: "constants",
    Role.BATCH: "batch",
    Role.HYPER: "batch",
}

ACTIVATIONS, GRADIENTS, WORKSPACE = "activations", "gradients", "workspace"

CATEGORIES = (*dict.fromkeys(_OF_ROLE.values()), ACTIVATIONS, GRADIENTS, WORKSPACE)
"""Every category, in the order in which people read them."""


def categories(graph: OpGraph) -> Mapping[str, str]:
    """The category of each tensor with bytes of its own.

    A new value of state has the category of what it replaces. Results of the forward pass, which
    the loss is computed from, are activations; all others count as gradients.
    """
    forward = before_the_loss(graph)
    found: dict[str, str] = {}
    for tensor in graph.bases:
        state = graph.update_of.get(tensor.name)
        role = tensor.role if state is None else graph.tensor[state].role
        made = ACTIVATIONS if tensor.name in forward else GRADIENTS
        found[tensor.name] = _OF_ROLE.get(role, made)
    return found


def before_the_loss(graph: OpGraph) -> frozenset[str]:
    """Tensors of the forward pass: what the first result, the loss, is computed from."""
    if not graph.outputs:
        return frozenset()
    maker = {output: op for op in graph.ops for output in op.outputs}
    found: set[str] = set()
    waiting = [graph.outputs[0]]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting.append(graph.base[name])
        if name in maker:
            waiting += [*maker[name].inputs, *maker[name].outputs]
    return frozenset(found)
