"""Buffers that an exported program writes."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default


def written_buffers(program: ExportedProgram) -> dict[fx.Node, fx.Node]:
    """The node of each buffer that the program replaces, with that of its new value.

    Running statistics of batch norms and counters are left out: the operator of the norm says what
    becomes of the former, and `counted` of the latter.
    """
    counters = counted(program)
    return {
        buffer: new
        for target, (buffer, new) in _mutated(program).items()
        if new is not buffer and target not in counters and not _is_running_statistic(new)
    }


def counted(program: ExportedProgram) -> dict[str, int]:
    """Integer buffers that nothing reads and to which the program adds a number, with that number."""
    found = {}
    for target, (buffer, new) in _mutated(program).items():
        increment = _increment(buffer, new)
        if increment is not None:
            found[target] = increment
    return found


def _mutated(program: ExportedProgram) -> dict[str, tuple[fx.Node, fx.Node]]:
    """The nodes of the old and the new value of every buffer that is replaced, by its name."""
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes}
    buffers = {target: nodes[name] for name, target in signature.inputs_to_buffers.items()}
    return {
        str(spec.target): (buffers[str(spec.target)], nodes[spec.arg.name])
        for spec in signature.output_specs
        if spec.kind is OutputKind.BUFFER_MUTATION
    }


def _increment(buffer: fx.Node, new: fx.Node) -> int | None:
    """The sum of the whole numbers that are added to a buffer, if nothing else reads it."""
    if "int" not in str(buffer.meta["val"].dtype):
        return None
    total = 0
    while new is not buffer:
        if new.target is not torch.ops.aten.add.Tensor or len(new.users) != 1 or new.kwargs:
            return None
        before, by = new.args
        if not isinstance(before, fx.Node) or not isinstance(by, int):
            return None
        total, new = total + by, before
    return total if len(buffer.users) == 1 and total else None


def _is_running_statistic(new: fx.Node) -> bool:
    """Whether a value is the new mean or variance that a batch norm returns."""
    source = new.args[0] if new.args else None
    return isinstance(source, fx.Node) and source.target is _BATCH_NORM
