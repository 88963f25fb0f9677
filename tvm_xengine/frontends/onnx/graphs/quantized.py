"""Weights that a file holds as whole numbers with scales."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_xengine.frontends.onnx.graphs.constants import constant_tensors
from tvm_xengine.relax_ir.types import Array

_SUFFIX = "_quantized"
"""ONNX Runtime's tools append it to the name of a tensor."""
_MIDDLE = {"int2": 0, "uint2": 2, "int4": 0, "uint4": 8, "int8": 0, "uint8": 128, "int32": 0}
"""Zero point of symmetric weights, by the types of those that are read."""


def dequantize_weights(graph: onnx.GraphProto) -> dict[str, Array]:
    """Replace DequantizeLinear of constants by initialisers of float32, so that they can be trained.

    Returns the scales of those that are symmetric, by the names of the new initialisers, as arrays that
    broadcast to them.
    """
    known = constant_tensors(graph)
    taken = {*known, *(name for node in graph.node for name in node.output)}
    renamed: dict[str, str] = {}
    scales: dict[str, Array] = {}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        read = _read(node, known)
        if read is None:
            kept.append(node)
            continue
        whole, scale, zero = read
        made = node.output[0]
        bare = node.input[0].removesuffix(_SUFFIX)
        name = bare if bare not in taken else made
        taken.add(name)
        renamed[made] = name
        value = (whole.astype("int32") - zero.astype("int32")).astype("float32") * scale
        graph.initializer.append(numpy_helper.from_array(value.astype("float32"), name))
        if whole.dtype.name != "int32" and (zero == _MIDDLE[whole.dtype.name]).all():
            scales[name] = scale
    del graph.node[:]
    graph.node.extend(kept)
    for node in graph.node:
        for position, name in enumerate(node.input):
            node.input[position] = renamed.get(name, name)
    return scales


def join_pairs(graph: onnx.GraphProto) -> None:
    """Give each DequantizeLinear that undoes a QuantizeLinear the number that was quantized, as last input.

    Its gradient goes straight to that number, as in PyTorch's ``fake_quantize``.
    """
    makers = {node.output[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
    for node in graph.node:
        made_by = makers.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if made_by is not None and list(made_by.input[1:]) == list(node.input[1:]):
            node.input.extend([""] * (JOINED - len(node.input)))
            node.input.append(made_by.input[0])


JOINED = 3
"""The position of that number among the inputs of DequantizeLinear."""


def _read(
    node: onnx.NodeProto, known: dict[str, onnx.TensorProto]
) -> tuple[Array, Array, Array] | None:
    """Numbers, scale and zero point of a constant that is dequantized; None of other nodes."""
    names = [name for name in node.input if name]
    if node.op_type != "DequantizeLinear" or any(name not in known for name in names):
        return None
    if any(a.name != "axis" for a in node.attribute) or not names:
        return None
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(known[names[0]].data_type))
    scale_kind = helper.tensor_dtype_to_np_dtype(known[names[1]].data_type)
    if kind.name not in _MIDDLE or np.dtype(scale_kind) != np.float32:
        return None
    whole, scale, *zeros = (numpy_helper.to_array(known[name]) for name in names)
    zero = zeros[0] if zeros else np.zeros_like(scale, kind)
    axis = next((a.i for a in node.attribute), 1)
    if scale.size == 1:
        return whole, scale.reshape(()), zero.reshape(())
    if scale.ndim != 1:
        return None
    shape = [1] * whole.ndim
    shape[axis % whole.ndim] = -1
    return whole, scale.reshape(shape), zero.reshape(shape)
