"""Constant folding of ONNX graphs: values that follow from shapes and constants."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tvm_xengine.frontends.onnx.graphs.loops import write_out_loops
from tvm_xengine.frontends.onnx.graphs.shapes import known_shapes
from tvm_xengine.relax_ir.types import Array

logger = logging.getLogger(__name__)

_DRAWN = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
    | {"RandomUniformLike", "Dropout"}
)


def fold_constants(model: onnx.ModelProto, kept: Collection[str]) -> None:
    """Replace the nodes whose values follow from shapes and constants by Constant nodes.

    Branches that are always taken replace their If.

    Exporters write how the shape of a reshape, the widths of a padding or the bounds of a slice
    are computed from the shape of a tensor.

    Parameters
    ----------
    kept
        Initialisers that training changes: what is computed from them stays.
    """
    constants = _constants(model.graph, kept)
    while True:
        before = len(constants), len(model.graph.node)
        shapes = known_shapes(model)
        if write_out_loops(model, constants, shapes):
            constants |= _constants(model.graph, kept)
        nodes = [
            made
            for outer in model.graph.node
            for node in _taken(model.graph, outer, constants)
            for made in _folded(model, node, constants, shapes)
        ]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        constants |= _constants(model.graph, kept)
        if (len(constants), len(model.graph.node)) == before:
            return


def constant_tensors(
    graph: onnx.GraphProto, kept: Collection[str] = ()
) -> dict[str, onnx.TensorProto]:
    """The initialisers but for those `kept`, and what Constant nodes hold as tensors, by name."""
    known = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in kept}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            known[node.output[0]] = node.attribute[0].t
    return known


def _constants(graph: onnx.GraphProto, kept: Collection[str]) -> dict[str, Array]:
    """What training leaves as it is."""
    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in constant_tensors(graph, kept).items()
    }


def _taken(
    graph: onnx.GraphProto, node: onnx.NodeProto, constants: Mapping[str, Array]
) -> list[onnx.NodeProto]:
    """The nodes of the branch that is always taken instead of an If; else the node itself."""
    if node.op_type != "If" or node.input[0] not in constants:
        return [node]
    wanted = "then_branch" if constants[node.input[0]].reshape(-1)[0] else "else_branch"
    (branch,) = (a.g for a in node.attribute if a.name == wanted)
    ends = zip(branch.output, node.output, strict=True)
    renamed = [helper.make_node("Identity", [end.name], [name]) for end, name in ends]
    return [*branch.node, *renamed]


def _folded(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    constants: dict[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
) -> list[onnx.NodeProto]:
    """Constant nodes where all results are known, else the node itself."""
    if node.op_type == "Constant":
        return [node]
    values = _values(model, node, constants, shapes)
    if values is None:
        return [node]
    made = []
    for name, value in zip(node.output, values, strict=False):
        if name:
            constants[name] = value
            tensor = numpy_helper.from_array(value, name)
            made.append(helper.make_node("Constant", [], [name], name=node.name, value=tensor))
    return made


def _lies_inside(node: onnx.NodeProto, data: Array, indices: Array) -> bool:
    """Whether indices along an axis name places of it; ONNX's reference takes all others as well."""
    extent = data.shape[next((a.i for a in node.attribute if a.name == "axis"), 0)]
    return bool(((indices >= -extent) & (indices < extent)).all())


def _values(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    constants: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
) -> list[Array] | None:
    """What a node makes, None where that is not known yet or depends on more than constants."""
    if node.op_type in ("Shape", "Size"):
        shape = shapes.get(node.input[0])
        if shape is None:
            return None
        if node.op_type == "Size":
            return [np.array(np.prod(shape, dtype=np.int64))]
        bounds = {a.name: a.i for a in node.attribute}
        return [np.array(shape[bounds.get("start", 0) : bounds.get("end")], np.int64)]
    reads = [name for name in node.input if name]
    has_graph = any(a.HasField("g") for a in node.attribute)
    if has_graph or node.op_type in _DRAWN or not all(name in constants for name in reads):
        return None
    given = {name: constants[name] for name in reads}
    if node.op_type == "GatherElements" and not _lies_inside(
        node, *(constants[name] for name in reads)
    ):
        return None
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in given.items()
    ]
    made = [onnx.ValueInfoProto(name=name) for name in node.output]
    alone = helper.make_graph([node], "constant", infos, made)
    part = helper.make_model(alone, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        results = ReferenceEvaluator(part).run(None, given)
    except Exception as error:  # the reference has no common base of its errors
        logger.debug("%s (in %s) is not folded: %s", node.op_type, node.name, error)
        return None
    values = [np.asarray(value) for value in results]
    return values if all(value.dtype.kind not in "OUS" for value in values) else None
