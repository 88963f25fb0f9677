"""Shape inference by ONNX."""

from __future__ import annotations

import onnx
from onnx import shape_inference


def inferred(model: onnx.ModelProto) -> onnx.GraphProto:
    """The graph with the types of its tensors, as far as ONNX can infer them."""
    try:
        return shape_inference.infer_shapes(model, data_prop=True).graph
    except shape_inference.InferenceError:  # one node that ONNX does not know stops it
        return model.graph


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    """ONNX's numbers of the types of all tensors whose type can be inferred, by tensor."""
    graph = inferred(model)
    found = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for info in [*graph.input, *graph.value_info, *graph.output]:
        found[info.name] = info.type.tensor_type.elem_type
    return found


def known_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shapes that are known as numbers, by tensor."""
    graph = inferred(model)
    known = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            known[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    return known
