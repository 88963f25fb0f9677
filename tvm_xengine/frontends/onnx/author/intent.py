"""The intent of an exported network's author: roles, and warnings about what the file cannot tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx

from tvm_xengine.checks.names import some
from tvm_xengine.frontends.onnx.author.kinds import Kind, untold
from tvm_xengine.frontends.onnx.author.roles import decide_roles
from tvm_xengine.frontends.onnx.graphs.separate import (
    separate_merged,
    tie_copies,
    undo_identities,
)
from tvm_xengine.frontends.roles import TensorRole, Use

_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
"""Where PyTorch's newer exporter writes the operators that a node came from."""


def state_roles(
    graph: onnx.GraphProto,
    kinds: Mapping[str, Kind],
    computed: Mapping[str, tuple[str, ...]],
    *,
    from_pytorch: bool,
) -> tuple[list[TensorRole], list[str]]:
    """The role of each initialiser, in the order of the file, and what the user must know.

    Tensors that an exporter merged are separated and copies of tensors tied in `graph`.

    Parameters
    ----------
    kinds
        What the file tells.
    computed
        Parameters that the exporter computed of others.
    from_pytorch
        Whether PyTorch wrote the file, whose exporter names merged tensors by ``Identity``; in other
        files that is the tensor itself.
    """
    notes = []
    if from_pytorch:
        undo_identities(graph)
    if separated := separate_merged(graph):
        notes.append(
            f"several layers read {some(separated)}; the exporter seems to have merged tensors of"
            " equal values, and each layer has its own again. If layers shall share one, use"
            " torch.export"
        )
    if tied := tie_copies(graph):
        told = some(f"{copy} (of {table})" for copy, table in tied)
        notes.append(f"copies of tensors are tied to them again: {told}")
    if count := _folded_norms(graph):
        notes.append(
            f"the exporter folded batch norms into {count} convolutions, and the network trains"
            " without them; to train with them, use torch.export or export in training mode"
        )
    roles = decide_roles(graph, kinds)
    for copy, table in tied:
        roles[table] = replace(roles[table], also=(*roles[table].also, copy))
        roles.pop(copy, None)
    for name, sources in computed.items():
        if name in roles and roles[name].use is Use.TRAINED:
            notes.append(
                f"the exporter computed {name} of {some(sources)}, and it is trained apart from"
                f" {'them' if len(sources) > 1 else 'it'}; to train what the author meant, use torch.export"
            )
    unsure = untold(graph, kinds) if from_pytorch else []
    if unsure := [name for name in unsure if name in roles and roles[name].use is Use.TRAINED]:
        notes.append(
            f"the file does not tell whether {some(unsure)} are parameters, buffers or constants of"
            f" the code, and they are trained: freeze what is no parameter, as {unsure[0]!r}, or use"
            " torch.export"
        )
    guessed = [role for role in roles.values() if role.name not in kinds]
    if frozen := [role.name for role in guessed if role.use is Use.FROZEN]:
        notes.append(
            f"by their values or their place these tensors are not trained: {some(frozen)};"
            " patterns of names change that"
        )
    return list(roles.values()), notes


def _folded_norms(graph: onnx.GraphProto) -> int:
    """Convolutions that hold a batch norm.

    PyTorch's newer exporter says so in the metadata of the node, the older one gives both the
    filters and the bias that it computes names of its own.
    """
    stored = {tensor.name for tensor in graph.initializer}
    count = 0
    for node in graph.node:
        if node.op_type not in ("Conv", "ConvTranspose"):
            continue
        told = any("batch_norm" in e.value for e in node.metadata_props if e.key == _HIERARCHY)
        weights = [name for name in node.input[1:] if name in stored]
        count += told or (len(weights) == 2 and all(n.startswith("onnx::Conv_") for n in weights))
    return count
