"""One name for each tensor: graphs inside nodes may use names that others use, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.graphs.functions import all_nodes


def require_single_names(graph: onnx.GraphProto) -> None:
    """Refuse a graph in which two tensors have one name."""
    made: set[str] = {one.name for one in graph.input}
    stored: set[str] = set()
    for name in _stored(graph):
        if name in stored:
            raise _twice(name, "the file holds a tensor with")
        stored.add(name)
    made |= stored
    for node in graph.node:
        for name in filter(None, node.output):
            if name in made:
                told = f"{node.op_type} (in {node.name})" if node.name else node.op_type
                raise _twice(name, f"{told} makes a tensor with")
            made.add(name)
        for inner in inner_graphs(node):
            require_single_names(inner)


def _twice(name: str, told: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{told} the name {name!r}, which another tensor has already; give each tensor a name of its own"
    )


def unique_names(graph: onnx.GraphProto) -> None:
    """Rename tensors inside the nodes' graphs so that no two of the model have one name.

    The branches of two nodes may use the same names, which become one graph later.
    """
    taken = _own(graph)
    for node in graph.node:
        for inner in inner_graphs(node):
            _rename(inner, {}, taken)


def _rename(graph: onnx.GraphProto, outer: Mapping[str, str], taken: set[str]) -> None:
    names = dict(outer)
    for name in sorted(_own(graph)):
        names[name] = unused(name, taken)
    rename_graph(graph, names)
    for node in graph.node:
        for inner in inner_graphs(node):
            _rename(inner, names, taken)


def rename_graph(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the tensors of a graph, but not those of graphs inside its nodes."""
    for one in [*graph.input, *graph.initializer, *graph.output, *graph.value_info]:
        one.name = names.get(one.name, one.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    for node in graph.node:
        for read_or_made in (node.input, node.output):
            for position, name in enumerate(read_or_made):
                read_or_made[position] = names.get(name, name)


def unused(name: str, taken: set[str]) -> str:
    """A name like this one that is not taken; it is taken from then on."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


def taken_names(graph: onnx.GraphProto) -> set[str]:
    """The names of all tensors of a graph and of the graphs inside its nodes."""
    inner = {made for node in all_nodes(graph) for made in node.output}
    return _own(graph) | inner


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs of a node: branches, the body of a loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_inner_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside the nodes of a graph, and those inside their nodes."""
    for node in graph.node:
        for inner in inner_graphs(node):
            yield inner
            yield from all_inner_graphs(inner)


def _own(graph: onnx.GraphProto) -> set[str]:
    made = {name for node in graph.node for name in node.output if name}
    return {*(one.name for one in graph.input), *_stored(graph), *made}


def _stored(graph: onnx.GraphProto) -> list[str]:
    dense = [tensor.name for tensor in graph.initializer]
    return dense + [one.values.name for one in graph.sparse_initializer]
