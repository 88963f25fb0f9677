"""Where in a PyTorch module a node of an ONNX file comes from, as PyTorch's exporters write it.

The exporter by ``torch.export`` writes properties of the node; the one by tracing names the node after
the path of its module.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePath

import onnx

from tvm_xengine.frontends.place import Place, source_line

_SCOPES = "pkg.torch.onnx.name_scopes"
"""A list in Python's notation: paths of the modules from the outermost, and then the node."""
_TRACE = "pkg.torch.onnx.stack_trace"


def places_of(graph: onnx.GraphProto) -> Mapping[str, Place]:
    """The place of each node that has a name and a known place, by its name."""
    found = {node.name: _place(node) for node in graph.node if node.name}
    return {name: place for name, place in found.items() if place != Place()}


def _place(node: onnx.NodeProto) -> Place:
    properties = {entry.key: entry.value for entry in node.metadata_props}
    if _SCOPES not in properties:
        return Place(_module_of_name(node.name))
    line = source_line(properties.get(_TRACE, ""), _is_of_pytorch)
    return Place(_innermost(properties[_SCOPES]), line)


def _innermost(scopes: str) -> str:
    try:
        paths = ast.literal_eval(scopes)
    except (ValueError, SyntaxError):
        return ""
    is_list = isinstance(paths, list) and len(paths) > 1
    return paths[-2] if is_list and isinstance(paths[-2], str) else ""


def _module_of_name(node: str) -> str:
    """``layer1.0.conv1`` of ``/layer1/layer1.0/conv1/Conv``; a part may repeat what is before it."""
    if not node.startswith("/"):
        return ""
    path = ""
    for part in node.split("/")[1:-1]:
        path = part if not path or part.startswith(f"{path}.") else f"{path}.{part}"
    return path


def _is_of_pytorch(path: PurePath) -> bool:
    """Whether a file is below ``site-packages/torch``; the file may be of another machine."""
    parts = path.parts
    return any(
        folder in ("site-packages", "dist-packages") and inside == "torch"
        for folder, inside in pairwise(parts)
    )
