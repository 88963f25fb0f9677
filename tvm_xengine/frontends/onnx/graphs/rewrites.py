"""Changes to an ONNX graph that make it trainable."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.author.uses import InputUse, use_of
from tvm_xengine.frontends.onnx.graphs.constants import constant_tensors
from tvm_xengine.frontends.onnx.graphs.functions import all_nodes
from tvm_xengine.frontends.onnx.graphs.names import all_inner_graphs, taken_names, unused
from tvm_xengine.frontends.onnx.graphs.shapes import inferred, known_shapes
from tvm_xengine.relax_ir.types import Array


def write_constants_as_tensors(graph: onnx.GraphProto) -> None:
    """Write the values of Constant nodes, which have several forms, as tensors."""
    for node in all_nodes(graph):
        if node.op_type != "Constant" or len(node.attribute) != 1:
            continue
        (attribute,) = node.attribute
        value = helper.get_attribute_value(attribute)
        array: Array
        match attribute.name:
            case "value_float" | "value_floats":
                array = np.array(value, np.float32)
            case "value_int" | "value_ints":
                array = np.array(value, np.int64)
            case "sparse_value":
                array = _dense(value)
            case "value":
                continue
            case _:
                raise UnsupportedModelError(
                    f"Constant (in {node.name or node.output[0]}) holds strings; only numbers are known"
                )
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(array)))


def write_sparse_as_dense(graph: onnx.GraphProto) -> None:
    """Make initialisers of all elements from those that name only the ones that are not zero."""
    for sparse in graph.sparse_initializer:
        graph.initializer.append(numpy_helper.from_array(_dense(sparse), sparse.values.name))
    del graph.sparse_initializer[:]


def _dense(sparse: onnx.SparseTensorProto) -> Array:
    values = numpy_helper.to_array(sparse.values)
    places = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), dense.shape)
    dense.reshape(-1)[flat] = values
    return dense


def lift_weights(graph: onnx.GraphProto) -> None:
    """Make initialisers of the Constant nodes that a layer reads as its weights.

    Those in the body of a loop are one tensor for all iterations.
    """
    weights = _read_as_weights(graph)
    # Inner ones first: to replace the nodes of a graph copies what is in them.
    for one in reversed([graph, *all_inner_graphs(graph)]):
        kept = []
        for node in one.node:
            if node.op_type != "Constant" or node.output[0] not in weights:
                kept.append(node)
                continue
            tensor = onnx.TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
        del one.node[:]
        one.node.extend(kept)


_MOVES = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def _read_as_weights(graph: onnx.GraphProto) -> set[str]:
    """The tensors that a layer reads as its weights or statistics, also after their elements moved."""
    nodes = list(all_nodes(graph))
    found = {
        name
        for node in nodes
        for position, name in enumerate(node.input)
        if use_of(node, position) in (InputUse.WEIGHT, InputUse.STATISTIC)
    }
    for node in reversed(nodes):
        if node.op_type in _MOVES and node.output[0] in found:
            found.add(node.input[0])
    return found


def materialise_filled_weights(graph: onnx.GraphProto) -> None:
    """Make initialisers of ConstantOfShape nodes that a layer reads, so that they can be trained.

    Others are what `torch.ones` and the like in the code became.
    """
    weights = _read_as_weights(graph)
    known = {tensor.name: tensor for tensor in graph.initializer}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        is_filled = node.op_type == "ConstantOfShape" and node.input[0] in known
        if is_filled and node.output[0] in weights:
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


def bind_batch(name: str, model: onnx.ModelProto, batch_size: int | None) -> set[int]:
    """Give every input a fixed shape, the leading dimension being the batch size.

    Reshapes that keep the leading dimension, and say so by its number, keep the new one.

    Returns the other batch sizes that the file is for.
    """
    graph = model.graph
    replaced: set[int] = set()
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
            replaced |= {dims[0].dim_value} - {0, batch_size}
            dims[0].dim_value = batch_size
        open_dims = [d.dim_param or "?" for d in dims if not d.HasField("dim_value")]
        if open_dims:
            raise UnsupportedModelError(
                f"{name}: the input {one.name} has the dynamic dimensions {open_dims}; "
                "only the leading one can be bound, by the batch size"
            )

    if batch_size is not None:
        for node in graph.node:
            if node.op_type == "Reshape":
                _rebatch_reshape(graph, node, leading, replaced, batch_size)
    # Shapes of the old batch size would contradict the new one.
    del graph.value_info[:]
    return replaced


def _leading_dimensions(model: onnx.ModelProto) -> dict[str, int]:
    """The leading dimension of every tensor whose shape can be inferred."""
    graph = inferred(model)
    known: dict[str, int] = {}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_value:
            known[value.name] = dims[0].dim_value
    return known


def _rebatch_reshape(
    graph: onnx.GraphProto,
    node: onnx.NodeProto,
    leading: dict[str, int],
    replaced: Collection[int],
    batch_size: int,
) -> None:
    """Replace the leading number of a target shape that is the old batch size of its input."""
    known = constant_tensors(graph)
    if node.input[1] not in known:
        return
    shape = numpy_helper.to_array(known[node.input[1]]).copy()
    if len(shape) and shape[0] in replaced and shape[0] == leading.get(node.input[0]):
        shape[0] = batch_size
        node.input[1] = unused(f"{node.output[0]}_shape", taken_names(graph))
        graph.initializer.append(numpy_helper.from_array(shape, node.input[1]))


def write_padding(model: onnx.ModelProto) -> None:
    """Give convolutions and pools their padding in numbers.

    As ONNX's operators Conv and ConvTranspose define ``auto_pad`` and ``output_shape``.
    """
    shapes = known_shapes(model)
    for node in model.graph.node:
        if node.op_type in _PADDED and node.input[0] in shapes:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            space = shapes[node.input[0]][2:]
            kernel = attributes.get("kernel_shape") or shapes[node.input[1]][2:]
            if node.op_type == "ConvTranspose":
                _pad_transposed(attributes, space, kernel)
            else:
                _pad_same(attributes, space, kernel)
            del node.attribute[:]
            node.attribute.extend(helper.make_attribute(n, one) for n, one in attributes.items())


_PADDED = (
    "AveragePool",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "LpPool",
    "MaxPool",
    "QLinearConv",
)


def _pad_same(attributes: dict[str, Any], space: Sequence[int], kernel: Sequence[int]) -> None:
    """Padding that keeps the extent over the stride: an odd element lies behind the image with
    SAME_UPPER, before it with SAME_LOWER."""
    kind = attributes.pop("auto_pad", b"NOTSET")
    if not kind.startswith(b"SAME"):
        return
    strides = attributes.get("strides") or [1] * len(space)
    dilations = attributes.get("dilations") or [1] * len(space)
    sums = [
        max(0, (-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent)
        for extent, size, stride, dilation in zip(space, kernel, strides, dilations, strict=True)
    ]
    less, more = [total // 2 for total in sums], [total - total // 2 for total in sums]
    attributes["pads"] = less + more if kind == b"SAME_UPPER" else more + less


def _pad_transposed(
    attributes: dict[str, Any], space: Sequence[int], kernel: Sequence[int]
) -> None:
    """Padding that gives the wanted extent; where that is too large, elements behind the image."""
    kind = attributes.pop("auto_pad", b"NOTSET")
    strides = attributes.get("strides") or [1] * len(space)
    dilations = attributes.get("dilations") or [1] * len(space)
    behind = list(attributes.get("output_padding") or [0] * len(space))
    wanted = attributes.pop("output_shape", None)
    if wanted is None:
        if not kind.startswith(b"SAME"):
            return
        wanted = [extent * stride for extent, stride in zip(space, strides, strict=True)]
    begins, ends = [], []
    for k, extent in enumerate(list(wanted)[-len(space) :]):
        reach = strides[k] * (space[k] - 1) + (kernel[k] - 1) * dilations[k] + 1
        total = reach + behind[k] - extent
        if total < 0:
            behind[k], total = behind[k] - total, 0
        less = total // 2
        begins.append(less if kind == b"SAME_UPPER" else total - less)
        ends.append(total - begins[-1])
    attributes["pads"], attributes["output_padding"] = begins + ends, behind


def drop_unread_masks(graph: onnx.GraphProto) -> None:
    """Leave out the masks of dropouts that nothing reads."""
    read = {name for node in graph.node for name in node.input}
    read |= {output.name for output in graph.output}
    for node in graph.node:
        if node.op_type == "Dropout" and read.isdisjoint(node.output[1:]):
            del node.output[1:]
