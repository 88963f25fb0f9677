"""Parameters, buffers and what the code computes, as PyTorch's exporters tell them apart."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from enum import Enum

import onnx

from tvm_xengine.frontends.onnx.author.tables import is_uniform, named_by_exporter
from tvm_xengine.frontends.onnx.author.uses import InputUse, use_of
from tvm_xengine.frontends.onnx.graphs.functions import all_nodes
from tvm_xengine.relax_ir.types import Array

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_FOLDED_FROM = "pkg.onnxscript.optimizer.folded_from"
"""Where the newer exporter writes the kinds of tensors, and of which tensors it computed a tensor."""

_TARGET = re.compile(r"^\w+: (PARAMETER|BUFFER|CONSTANT_TENSOR) target='([^']*)'", re.MULTILINE)

_CONSTANT_NODE = re.compile(r"(^|/)Constant(_\d+)?_output_\d+$")
"""What the older exporter calls the tensors that it finds in the code, also after tools made them
initialisers."""


class Kind(Enum):
    """What a tensor of a file was in the module."""

    PARAMETER = "a parameter of the module"
    BUFFER = "a buffer of the module"
    COMPUTED = "a constant in the code"


def kinds_of(model: onnx.ModelProto) -> dict[str, Kind]:
    """The kinds of the tensors that PyTorch wrote; of those that are left out the file does not tell.

    The newer exporter tells all kinds. The older one gives names to parameters and buffers alike, and
    to what it found in the code; in files without any name of the author these may be weights, too.
    """
    if model.producer_name != "pytorch":
        return {}
    graph = model.graph
    told = {one.key: one.value for one in graph.metadata_props}.get(_SIGNATURE)
    if told is None:
        return _by_names(graph)
    targets = {target: _kind(kind) for kind, target in _TARGET.findall(told)}
    sources = _sources(graph)
    order = list(Kind)

    def kind(name: str) -> Kind:
        found = [targets[one] for one in (name, *sources.get(name, ())) if one in targets]
        return min(found, key=order.index, default=Kind.COMPUTED)

    return {tensor.name: kind(tensor.name) for tensor in graph.initializer}


def computed_parameters(
    graph: onnx.GraphProto, kinds: Mapping[str, Kind]
) -> dict[str, tuple[str, ...]]:
    """Parameters of the file that the exporter computed of others, which the step does not do again.

    That is another network where one of these is read as well, and where there are several.
    """
    stored = {tensor.name for tensor in graph.initializer}
    found = {}
    for name, sources in _sources(graph).items():
        if name in stored and kinds.get(name) is Kind.PARAMETER:
            told = tuple(s for s in sources if kinds.get(s, Kind.PARAMETER) is Kind.PARAMETER)
            if len(told) > 1 or stored.intersection(told):
                found[name] = told
    return found


def untold(graph: onnx.GraphProto, kinds: Mapping[str, Kind]) -> list[str]:
    """Matrices that may be parameters, buffers or constants.

    The older exporter calls a matrix that it transposed by a number. Those that a layer reads are its
    weights: a bias of the layer's name follows, or no module lies in the one that reads it.
    """
    weights = {t.name: t for t in graph.initializer if t.name not in kinds}
    scopes = {_scope(node.name) for node in graph.node}
    found: dict[str, None] = {}
    for node in graph.node:
        scope = _scope(node.name)
        has_parts = not scope or any(other.startswith(f"{scope}.") for other in scopes)
        if node.op_type == "MatMul" and has_parts and f"{scope}.bias" not in weights:
            found.update(dict.fromkeys(name for name in node.input if name in weights))
    return list(found)


def is_made_in_code(name: str, value: Array) -> bool:
    """Whether a matrix without a name holds one number, which no layer starts from but 0."""
    return named_by_exporter(name) and value.ndim > 1 and is_uniform(value) and bool(value.any())


def _by_names(graph: onnx.GraphProto) -> dict[str, Kind]:
    weights = {
        name
        for node in all_nodes(graph)
        for position, name in enumerate(node.input)
        if use_of(node, position) is InputUse.WEIGHT
    }
    stored = {tensor.name for tensor in graph.initializer}
    has_names = any(not named_by_exporter(name) for name in weights & stored)
    in_code = ("Constant", "ConstantOfShape")
    made = [name for node in all_nodes(graph) if node.op_type in in_code for name in node.output]
    found = [*made, *filter(_CONSTANT_NODE.search, stored)]
    return dict.fromkeys(found, Kind.COMPUTED) if has_names else {}


def _sources(graph: onnx.GraphProto) -> dict[str, list[str]]:
    """What PyTorch's newer exporter computed the tensors of the file of."""
    return {
        info.name: [
            s for p in info.metadata_props if p.key == _FOLDED_FROM for s in _listed(p.value)
        ]
        for info in graph.value_info
    }


def _kind(told: str) -> Kind:
    return {"PARAMETER": Kind.PARAMETER, "BUFFER": Kind.BUFFER}.get(told, Kind.COMPUTED)


def _listed(names: str) -> Iterable[str]:
    """The names in a list, as Python writes it."""
    try:
        return [str(one) for one in ast.literal_eval(names)]
    except (ValueError, SyntaxError, TypeError):
        return ()


def _scope(node: str) -> str:
    """The module that the older exporter names a node for, as PyTorch writes it."""
    return ".".join(node.split("/")[1:-1])
