"""Unrolling of loops with a known number of iterations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.graphs.functions import opset_of
from tvm_xengine.frontends.onnx.graphs.names import inner_graphs, rename_graph
from tvm_xengine.relax_ir.types import Array

_MOST_NODES = 100_000
"""Nodes that a loop may be written out to: more take hours to import and to schedule."""


def write_out_loops(
    model: onnx.ModelProto,
    constants: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
) -> bool:
    """Replace loops whose number of iterations is known by their iterations.

    Returns whether there was one.
    """
    graph = model.graph
    nodes: list[onnx.NodeProto] = []
    found = False
    for node in graph.node:
        written = None
        if node.op_type == "Loop":
            written = _loop(_Writer(model, node), constants)
        elif node.op_type == "Scan":
            written = _scan(_Writer(model, node), shapes)
        found = found or written is not None
        nodes += [node] if written is None else written
    if found:
        del graph.node[:]
        graph.node.extend(nodes)
    return found


class _Writer:
    """Writes the iterations of one loop."""

    def __init__(self, model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        self.node = node
        self.opset = opset_of(model)
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.body: onnx.GraphProto = self.attributes["body"]
        self.name = next(name for name in node.output if name)
        self._graph = model.graph

    def constant(self, value: Array, name: str) -> str:
        """The name of a tensor that holds a value."""
        full = f"{self.name}/{name}"
        self._graph.initializer.append(numpy_helper.from_array(value, full))
        return full

    def require(self, iterations: int) -> None:
        """Refuse a loop that is too long to be written out."""
        nodes = iterations * len(self.body.node)
        if nodes > _MOST_NODES:
            raise UnsupportedModelError(
                f"{self.node.op_type} (in {self.node.name or self.name}) has {iterations} "
                f"iterations, {nodes} nodes written out; {_MOST_NODES} at most"
            )

    def iteration(self, k: int, given: Sequence[str]) -> tuple[list[onnx.NodeProto], list[str]]:
        """The nodes of one iteration, and the names of its results."""
        names = dict(zip((one.name for one in self.body.input), given, strict=True))
        prefix = f"{self.name}/{k}/"
        nodes = list(_renamed(self.body.node, names, prefix))
        return nodes, [names[one.name] for one in self.body.output]


def _renamed(
    nodes: Sequence[onnx.NodeProto], names: dict[str, str], prefix: str
) -> Iterator[onnx.NodeProto]:
    """Copies of nodes under other names; `names` learns the names of what they make."""
    for node in nodes:
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        copied.name = prefix + node.name if node.name else ""
        for position, read in enumerate(node.input):
            copied.input[position] = names.get(read, read)
        for position, made in enumerate(node.output):
            if made:
                names[made] = prefix + made
                copied.output[position] = names[made]
        for inner in inner_graphs(copied):
            _rename_inside(inner, names, prefix)
        yield copied


def _rename_inside(graph: onnx.GraphProto, outer: Mapping[str, str], prefix: str) -> None:
    """Rename what the graph of a node makes, and what it reads of the graphs around it."""
    own = {one.name for one in [*graph.input, *graph.initializer]}
    own |= {made for node in graph.node for made in node.output if made}
    names = {**outer, **{name: prefix + name for name in own}}
    rename_graph(graph, names)
    for node in graph.node:
        for inner in inner_graphs(node):
            _rename_inside(inner, names, prefix)


def _loop(writer: _Writer, constants: Mapping[str, Array]) -> list[onnx.NodeProto] | None:
    """A Loop whose count is constant and that never ends earlier; None for others."""
    count, condition = writer.node.input[:2]
    if count not in constants or not _goes_on(writer.body, condition, constants):
        return None
    iterations = max(0, int(constants[count].reshape(())))
    if condition and not constants[condition].reshape(()):
        iterations = 0
    writer.require(iterations)
    carried = list(writer.node.input[2:])
    true = writer.constant(np.array(True), "true")
    nodes: list[onnx.NodeProto] = []
    seen: list[list[str]] = [[] for _ in writer.node.output[len(carried) :]]
    for k in range(iterations):
        step = writer.constant(np.array(k, np.int64), f"iteration_{k}")
        made, results = writer.iteration(k, [step, true, *carried])
        nodes += made
        carried = results[1 : 1 + len(carried)]
        for rows, row in zip(seen, results[1 + len(carried) :], strict=True):
            rows.append(row)
    if not iterations and seen:
        return None
    return [*nodes, *_ends(writer, carried, [(rows, 0) for rows in seen])]


def _goes_on(body: onnx.GraphProto, condition: str, constants: Mapping[str, Array]) -> bool:
    """Whether no iteration but a count ends the loop."""
    if condition and condition not in constants:
        return False
    makers = {made: node for node in body.node for made in node.output}
    values: dict[str, Array] = {}
    name = body.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == body.input[1].name:
        return True
    if name in makers and makers[name].op_type == "Constant":
        values[name] = numpy_helper.to_array(makers[name].attribute[0].t)
    known = values.get(name, constants.get(name))
    return known is not None and bool(known.reshape(()))


def _scan(writer: _Writer, shapes: Mapping[str, tuple[int, ...]]) -> list[onnx.NodeProto] | None:
    """A Scan over axes of known extent; None for others, and for those with a batch (version 8)."""
    scanned = int(writer.attributes["num_scan_inputs"])
    carried, rows = list(writer.node.input[:-scanned]), list(writer.node.input[-scanned:])
    if writer.opset < 9 or any(name not in shapes for name in rows):
        return None
    into = _axes(writer, "scan_input_axes", [len(shapes[name]) for name in rows])
    backwards = writer.attributes.get("scan_input_directions", [0] * scanned)
    iterations = shapes[rows[0]][into[0]]
    writer.require(iterations)
    nodes, slices = [], []
    for name, axis, backward in zip(rows, into, backwards, strict=True):
        made, parts = _slices(writer, name, axis, shapes[name])
        nodes += made
        slices.append(parts[::-1] if backward else parts)
    results_count = len(writer.node.output) - len(carried)
    seen: list[list[str]] = [[] for _ in range(results_count)]
    for k in range(iterations):
        made, results = writer.iteration(k, [*carried, *(parts[k] for parts in slices)])
        nodes += made
        carried = results[: len(carried)]
        for kept, row in zip(seen, results[len(carried) :], strict=True):
            kept.append(row)
    out = list(writer.attributes.get("scan_output_axes", [0] * results_count))
    for k, backward in enumerate(writer.attributes.get("scan_output_directions", [])):
        seen[k] = seen[k][::-1] if backward else seen[k]
    return [*nodes, *_ends(writer, carried, list(zip(seen, out, strict=True)))]


def _axes(writer: _Writer, name: str, ranks: Sequence[int]) -> list[int]:
    given = writer.attributes.get(name, [0] * len(ranks))
    return [int(axis) % rank for axis, rank in zip(given, ranks, strict=True)]


def _slices(
    writer: _Writer, name: str, axis: int, shape: Sequence[int]
) -> tuple[list[onnx.NodeProto], list[str]]:
    """The tensors along an axis, without it."""
    count = shape[axis]
    rest = np.array([extent for k, extent in enumerate(shape) if k != axis], np.int64)
    target = writer.constant(rest, f"shape_of_{name}")
    if count == 1:
        part = f"{writer.name}/{name}/0"
        return [helper.make_node("Reshape", [name, target], [part])], [part]
    kept = [f"{writer.name}/{name}/{k}/kept" for k in range(count)]
    if writer.opset >= 18:
        split = helper.make_node("Split", [name], kept, axis=axis, num_outputs=count)
    else:
        split = helper.make_node("Split", [name], kept, axis=axis)
    parts = [one.removesuffix("/kept") for one in kept]
    reshaped = [
        helper.make_node("Reshape", [one, target], [part])
        for one, part in zip(kept, parts, strict=True)
    ]
    return [split, *reshaped], parts


def _ends(
    writer: _Writer, carried: Sequence[str], stacked: Sequence[tuple[list[str], int]]
) -> Iterator[onnx.NodeProto]:
    """The results of the loop under their names."""
    outputs = list(writer.node.output)
    for name, value in zip(outputs, carried, strict=False):
        if name:
            yield helper.make_node("Identity", [value], [name])
    for name, (rows, axis) in zip(outputs[len(carried) :], stacked, strict=True):
        if name:
            yield from _stacked(writer, rows, axis, name)


def _stacked(
    writer: _Writer, rows: Sequence[str], axis: int, name: str
) -> Iterator[onnx.NodeProto]:
    """Tensors side by side along a new axis."""
    axes = writer.constant(np.array([axis], np.int64), f"axis_of_{name}")
    wide = [f"{writer.name}/{name}/{k}" for k in range(len(rows))]
    for row, one in zip(rows, wide, strict=True):
        if writer.opset >= 13:
            yield helper.make_node("Unsqueeze", [row, axes], [one])
        else:
            yield helper.make_node("Unsqueeze", [row], [one], axes=[axis])
    yield helper.make_node("Concat", wide, [name], axis=axis)
