"""ONNX graphs run by torch, op by op after the ONNX specification: a second opinion with autograd."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

Attributes = Mapping[str, object]
Operator = Callable[..., torch.Tensor]


def run_graph(
    graph: onnx.GraphProto, given: Mapping[str, torch.Tensor], upto: str | None = None
) -> torch.Tensor:
    """The first output of a graph, or the tensor `upto`; batch norms in training mode, no dropout.

    Parameters
    ----------
    given
        Inputs and weights by name; weights that a node would fill are taken from here.
    """
    values = {tensor.name: _tensor(tensor) for tensor in graph.initializer}
    values.update(given)
    for node in graph.node:
        if node.output[0] not in values:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            operands = [values[name] for name in node.input]
            values[node.output[0]] = OPERATORS[node.op_type](attributes, *operands)
    return values[upto or graph.output[0].name]


def _tensor(tensor: onnx.TensorProto) -> torch.Tensor:
    return torch.from_numpy(np.array(numpy_helper.to_array(tensor)))


def _batch_norm(attributes: Attributes, x, scale, shift, mean, variance):
    epsilon = attributes.get("epsilon", 1e-5)
    return functional.batch_norm(x, None, None, scale, shift, training=True, eps=epsilon)


def _conv(attributes: Attributes, x, weight, bias=None):
    x = functional.pad(x, _pads(attributes))
    strides = attributes.get("strides", [1, 1])
    dilations = attributes.get("dilations", [1, 1])
    groups = attributes.get("group", 1)
    return functional.conv2d(x, weight, bias, strides, 0, dilations, groups)


def _max_pool(attributes: Attributes, x):
    x = functional.pad(x, _pads(attributes), value=float("-inf"))
    return functional.max_pool2d(x, attributes["kernel_shape"], attributes.get("strides", [1, 1]))


def _average_pool(attributes: Attributes, x):
    kernel, strides = attributes["kernel_shape"], attributes.get("strides", [1, 1])
    pads = _pads(attributes)
    total = functional.avg_pool2d(functional.pad(x, pads), kernel, strides)
    if attributes.get("count_include_pad", 0):
        return total
    share = functional.avg_pool2d(functional.pad(torch.ones_like(x), pads), kernel, strides)
    return total / share


def _constant_of_shape(attributes: Attributes, shape):
    value = (
        numpy_helper.to_array(attributes["value"]) if "value" in attributes else np.zeros(1, "f4")
    )
    return torch.full([int(extent) for extent in shape], value.item()).to(_tensor_type(value))


def _tensor_type(value):
    return torch.from_numpy(np.array(value)).dtype


def _gemm(attributes: Attributes, a, b, c):
    a = a.T if attributes.get("transA", 0) else a
    b = b.T if attributes.get("transB", 0) else b
    return attributes.get("alpha", 1.0) * (a @ b) + attributes.get("beta", 1.0) * c


def _lrn(attributes: Attributes, x):
    return functional.local_response_norm(
        x, attributes["size"], attributes["alpha"], attributes["beta"], attributes.get("bias", 1.0)
    )


def _reshape(_attributes: Attributes, x, shape):
    sizes = [int(extent) or x.shape[axis] for axis, extent in enumerate(shape)]
    # The files were written for one example; -1 takes the rest where a batch leads.
    if sizes[0] == 1 and -1 not in sizes:
        sizes[0] = x.shape[0]
    elif sizes[0] == 1:
        sizes = [x.shape[0], *sizes[1:]]
    return x.reshape(sizes)


def _softmax(attributes: Attributes, x):
    # Before operator set 13 the axes from `axis` on count as one.
    axis = attributes.get("axis", 1)
    return functional.softmax(x.flatten(axis), -1).reshape(x.shape)


def _unsqueeze(attributes: Attributes, x):
    for axis in sorted(attributes["axes"]):
        x = x.unsqueeze(axis)
    return x


def _pads(attributes: Attributes) -> list[int]:
    """ONNX says (top, left, bottom, right); torch (left, right, top, bottom)."""
    top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
    return [left, right, top, bottom]


OPERATORS: dict[str, Operator] = {
    "Add": lambda _, x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Concat": lambda attributes, *parts: torch.cat(parts, attributes["axis"]),
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "Dropout": lambda _, x: x,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda _, x: x.mean((2, 3), keepdim=True),
    "LRN": _lrn,
    "MaxPool": _max_pool,
    "Mul": lambda _, x, y: x * y,
    "Relu": lambda _, x: functional.relu(x),
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Sum": lambda _, *parts: sum(parts),
    "Transpose": lambda attributes, x: x.permute(*attributes["perm"]),
    "Unsqueeze": _unsqueeze,
}
