"""Graphs of ONNX's first operator sets, in the rules of a later one."""

from __future__ import annotations

import onnx
from onnx import numpy_helper, version_converter

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.graphs.functions import all_nodes, opset_of
from tvm_xengine.frontends.onnx.graphs.shapes import known_shapes

FIRST_OPSET = 7
"""From here on operators broadcast as NumPy does, and attributes hold no names of types."""


def in_known_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an operator set whose rules the converters know.

    Raises
    ------
    UnsupportedModelError
        If ONNX cannot convert it.
    """
    opset = opset_of(model)
    names_one = any(one.domain in ("", "ai.onnx") for one in model.opset_import)
    if opset >= FIRST_OPSET or not names_one:
        return model
    _give_slopes_axes(model)
    try:
        return version_converter.convert_version(model, FIRST_OPSET)
    except Exception as error:  # ONNX's converter has no common base of its errors
        raise UnsupportedModelError(
            f"the graph is of opset {opset}, which ONNX cannot convert to {FIRST_OPSET}"
            f" ({str(error).rpartition('failed: ')[2] or type(error).__name__});"
            f" export it again, with opset {FIRST_OPSET} or later"
        ) from error


def _give_slopes_axes(model: onnx.ModelProto) -> None:
    """A slope of PRelu for each channel lies along axis 1, later along the last one."""
    shapes = known_shapes(model)
    slopes = {
        node.input[1]: len(shapes.get(node.input[0], ()))
        for node in all_nodes(model.graph)
        if node.op_type == "PRelu"
    }
    for tensor in model.graph.initializer:
        rank = slopes.get(tensor.name, 0)
        if rank > 2 and len(tensor.dims) == 1 and tensor.dims[0] > 1:
            value = numpy_helper.to_array(tensor).reshape(-1, *[1] * (rank - 2))
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
