"""Changes to an ONNX graph that make it trainable."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.shapes import known_shapes


def materialise_filled_weights(graph: onnx.GraphProto) -> None:
    """Replace ConstantOfShape nodes of known shape by initialisers, so that they can be trained."""
    known = {tensor.name: tensor for tensor in graph.initializer}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in known:
            shape = numpy_helper.to_array(known[node.input[0]])
            fill = next(
                (numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"), None
            )
            value = np.zeros(1, "float32") if fill is None else fill
            filled = np.full(shape, value.reshape(-1)[0], value.dtype)
            graph.initializer.append(numpy_helper.from_array(filled, node.output[0]))
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def bind_batch(name: str, model: onnx.ModelProto, batch_size: int | None) -> None:
    """Give every input a fixed shape, the leading dimension being the batch size.

    Reshapes that keep the leading dimension, and say so by its number, keep the new one.
    """
    graph = model.graph
    leading = _leading_dimensions(model)
    initialised = {tensor.name for tensor in graph.initializer}
    inputs = [one for one in graph.input if one.name not in initialised]
    del graph.input[:]
    graph.input.extend(inputs)
    for one in graph.input:
        if not one.type.HasField("tensor_type") or not one.type.tensor_type.HasField("shape"):
            raise UnsupportedModelError(f"{name}: the input {one.name} has no known shape")
        dims = one.type.tensor_type.shape.dim
        if dims and batch_size is not None:
            dims[0].dim_value = batch_size
        open_dims = [d.dim_param or "?" for d in dims if not d.dim_value]
        if open_dims:
            raise UnsupportedModelError(
                f"{name}: the input {one.name} has the dynamic dimensions {open_dims}; "
                "only the leading one can be bound, by the batch size"
            )

    if batch_size is not None:
        for node in graph.node:
            if node.op_type == "Reshape":
                _rebatch_reshape(graph, node, leading, batch_size)
    # Shapes of the old batch size would contradict the new one.
    del graph.value_info[:]


def _leading_dimensions(model: onnx.ModelProto) -> dict[str, int]:
    """The leading dimension of every tensor whose shape can be inferred."""
    graph = shape_inference.infer_shapes(model).graph
    known: dict[str, int] = {}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_value:
            known[value.name] = dims[0].dim_value
    return known


def _rebatch_reshape(
    graph: onnx.GraphProto, node: onnx.NodeProto, leading: dict[str, int], batch_size: int
) -> None:
    """Replace the leading number of a target shape that is the old batch size of its input."""
    position = next(
        (k for k, tensor in enumerate(graph.initializer) if tensor.name == node.input[1]), None
    )
    if position is None:
        return
    shape = numpy_helper.to_array(graph.initializer[position]).copy()
    if len(shape) and shape[0] > 0 and shape[0] == leading.get(node.input[0]):
        shape[0] = batch_size
        node.input[1] = f"{node.output[0]}_shape"
        graph.initializer.append(numpy_helper.from_array(shape, node.input[1]))


def write_padding(model: onnx.ModelProto) -> None:
    """Give convolutions and pools in numbers the padding that keeps the extent over the stride.

    As ONNX's operator Conv defines ``auto_pad``: an odd element lies behind the image with
    SAME_UPPER, before it with SAME_LOWER.
    """
    shapes = known_shapes(model)
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        kind = attributes.pop("auto_pad", b"NOTSET")
        if node.op_type not in ("Conv", "MaxPool", "AveragePool") or not kind.startswith(b"SAME"):
            continue
        if node.input[0] not in shapes:
            continue
        space = shapes[node.input[0]][2:]
        kernel = attributes.get("kernel_shape") or shapes[node.input[1]][2:]
        strides = attributes.get("strides") or [1] * len(space)
        dilations = attributes.get("dilations") or [1] * len(space)
        sums = [
            max(0, (-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent)
            for extent, size, stride, dilation in zip(
                space, kernel, strides, dilations, strict=True
            )
        ]
        less, more = [total // 2 for total in sums], [total - total // 2 for total in sums]
        attributes["pads"] = less + more if kind == b"SAME_UPPER" else more + less
        del node.attribute[:]
        node.attribute.extend(helper.make_attribute(n, value) for n, value in attributes.items())


def set_norm_modes(graph: onnx.GraphProto, *, train: bool) -> None:
    """Put batch norms into training mode where asked.

    ONNX weighs the old statistics with `momentum`; Relax, like PyTorch, the new ones, which TVM's
    importer does not convert.
    """
    for node in graph.node:
        if node.op_type != "BatchNormalization":
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        training = train or bool(attributes.get("training_mode", 0))
        momentum = 1 - attributes.get("momentum", 0.9)
        epsilon = attributes.get("epsilon", 1e-5)
        del node.attribute[:]
        node.attribute.extend(
            [
                helper.make_attribute("epsilon", float(epsilon)),
                helper.make_attribute("momentum", float(momentum)),
                helper.make_attribute("training_mode", int(training)),
            ]
        )
        del node.output[1:]
