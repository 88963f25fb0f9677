"""Tensors that an exporter merged or copied, as the author had them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_xengine.frontends.onnx.author.tables import is_float, is_uniform, named_by_exporter
from tvm_xengine.frontends.onnx.author.uses import InputUse, use_of
from tvm_xengine.frontends.onnx.graphs.functions import all_nodes
from tvm_xengine.frontends.onnx.graphs.names import taken_names, unused

_SCOPES = "pkg.torch.onnx.name_scopes"
"""Where PyTorch's newer exporter writes the module that a node came from."""

_MERGED_ELEMENTS = 1024
"""That exporter merges equal tensors of up to so many elements."""


def hoist_initialisers(graph: onnx.GraphProto) -> None:
    """Move the tensors of inner graphs to the outermost one, where each is one tensor."""
    for node in list(all_nodes(graph)):
        for attribute in node.attribute:
            if attribute.HasField("g") and attribute.g.initializer:
                graph.initializer.extend(attribute.g.initializer)
                del attribute.g.initializer[:]


def separate_merged(graph: onnx.GraphProto) -> list[str]:
    """Give tensors back that an exporter merged because they had equal values.

    Several layers then read one tensor. Such a tensor is taken apart where it is both a weight and
    a running statistic; where all its elements are equal, as in norms and biases that were never
    trained; and where the file comes from PyTorch's newer exporter, which merges small tensors of
    different modules.

    Returns the names of the tensors that were read by several layers and are separated.
    """
    values = {tensor.name: tensor for tensor in graph.initializer}
    taken = taken_names(graph)
    separated = []
    for name, reads in _weight_reads(graph).items():
        if name not in values or len(reads) < 2 or not _is_merged(values[name], reads):
            continue
        separated.append(name)
        for node, position in reads[1:]:
            layer = _layer(node) or node.name or node.output[0]
            copy = unused(f"{layer}.{name.rsplit('.', 1)[-1]}".lstrip("."), taken)
            tensor = onnx.TensorProto()
            tensor.CopyFrom(values[name])
            tensor.name = copy
            graph.initializer.append(tensor)
            node.input[position] = copy
    return separated


def undo_identities(graph: onnx.GraphProto) -> None:
    """Give tensors back that PyTorch's older exporter merged into others of equal values.

    It leaves an ``Identity`` under the name of the merged tensor, so that this is undone exactly.
    """
    values = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {info.name for info in graph.output}
    kept = []
    for node in graph.node:
        is_alias = node.op_type == "Identity" and node.input[0] in values
        if not is_alias or node.output[0] in outputs:
            kept.append(node)
            continue
        tensor = onnx.TensorProto()
        tensor.CopyFrom(values[node.input[0]])
        tensor.name = node.output[0]
        values[tensor.name] = tensor
        graph.initializer.append(tensor)
    del graph.node[:]
    graph.node.extend(kept)


_Read = tuple[onnx.NodeProto, int]


def _weight_reads(graph: onnx.GraphProto) -> dict[str, list[_Read]]:
    """Who reads a tensor as a weight, a statistic, or the bias that an Add is."""
    found: dict[str, list[_Read]] = {}
    for node in all_nodes(graph):
        for position, name in enumerate(node.input):
            if (
                use_of(node, position) in (InputUse.WEIGHT, InputUse.STATISTIC)
                or node.op_type == "Add"
            ):
                found.setdefault(name, []).append((node, position))
    return found


def _is_merged(tensor: onnx.TensorProto, reads: list[_Read]) -> bool:
    value = numpy_helper.to_array(tensor)
    if not is_float(value) or value.size < 2:
        return False
    uses = {use_of(node, position) for node, position in reads}
    if {InputUse.WEIGHT, InputUse.STATISTIC} <= uses:
        return True
    layers = [_layer(node) for node, _ in reads]
    if len(set(layers)) < len(layers):
        return False  # a module that runs several times reads its own tensor each time
    if is_uniform(value):
        return True
    same_kind = len({(node.op_type, position) for node, position in reads}) == 1
    from_scopes = all(_scope(node) for node, _ in reads)
    return same_kind and from_scopes and value.size <= _MERGED_ELEMENTS


def _scope(node: onnx.NodeProto) -> str:
    """The module that PyTorch's newer exporter names."""
    for entry in node.metadata_props:
        if entry.key == _SCOPES:
            names = [part.strip(" '\"") for part in entry.value.strip("[]").split(",")]
            return names[-2] if len(names) > 1 else ""
    return ""


def _layer(node: onnx.NodeProto) -> str:
    """The module that a node came from; nodes without one are layers of their own."""
    parts = [part for part in node.name.split("/") if part]
    return _scope(node) or "/".join(parts[:-1]) or node.name or node.output[0]


def tie_copies(graph: onnx.GraphProto) -> list[tuple[str, str]]:
    """Let products read the tensor of which they hold a copy.

    Exporters write the weight of a linear layer transposed, which unties it from the embedding
    that shares it, and compute the transposed of a matrix that the code also reads as it is.
    Layers of one kind with equal values are clones, not ties, and stay apart.

    Returns the pairs (copy, table).
    """
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    matrices = {
        name: value
        for name, value in values.items()
        if value.ndim == 2 and is_float(value) and not is_uniform(value)
    }
    looked_up = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    tables = {name: value for name, value in matrices.items() if name in looked_up}
    own = {name: value for name, value in matrices.items() if not named_by_exporter(name)}
    tied: list[tuple[str, str]] = []
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for position, table, is_transposed in list(_copies_in(node, matrices, tables, own)):
            tied.append((node.input[position], table))
            if is_transposed:
                turned = f"{node.output[0]}/{table}_transposed"
                nodes.append(helper.make_node("Transpose", [table], [turned], perm=[1, 0]))
                node.input[position] = turned
            else:
                node.input[position] = table
        nodes.append(node)
    if tied:
        del graph.node[:]
        graph.node.extend(nodes)
    return tied


def _copies_in(
    node: onnx.NodeProto,
    matrices: dict[str, np.ndarray],
    tables: dict[str, np.ndarray],
    own: dict[str, np.ndarray],
) -> Iterator[tuple[int, str, bool]]:
    """Which inputs of a product hold another matrix: (position, name of the matrix, transposed?).

    Tables of embeddings as they are or transposed; matrices with a name of the author (`own`) where a
    name of the exporter has their transposed values.
    """
    if node.op_type not in ("MatMul", "Gemm"):
        return
    for position, name in enumerate(node.input[:2]):
        if name not in matrices or name in tables:
            continue
        value = matrices[name]
        turned = {**tables, **(own if named_by_exporter(name) else {})}
        table = next((k for k, one in tables.items() if np.array_equal(value, one)), None)
        if table is not None:
            yield position, table, False
            continue
        table = next((k for k, one in turned.items() if np.array_equal(value, one.T)), None)
        if table is not None:
            yield position, table, True
