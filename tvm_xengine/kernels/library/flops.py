"""Operation counts of library calls, which the generated code around them does not show."""

from __future__ import annotations

import math

import numpy as np

from tvm_xengine.kernels.library.call import LibraryCall

_OUTPUT_AND_WEIGHT = {
    "convolution": (-1, 1),
    "conv_data_gradient": (0, 1),
    "conv_weight_gradient": (1, 2),
}
"""Which shapes of a call are those of the convolution's output and weight."""

_PER_ELEMENT = {
    "layer_norm_forward": (7.0, 0),
    "layer_norm_backward": (14.0, 1),
}
"""Operations for each element of one of a call's tensors, and which one that is."""


def flops(call: LibraryCall) -> float:
    """Multiplications and additions of a call."""
    shapes = call.shapes
    if call.operation in _OUTPUT_AND_WEIGHT:
        output, weight = (shapes[k] for k in _OUTPUT_AND_WEIGHT[call.operation])
        return 2.0 * math.prod(output) * math.prod(weight[1:])
    if call.operation == "linear_weight_gradient":
        return 2.0 * math.prod(shapes[-1]) * math.prod(shapes[0][:-1])
    if call.operation == "batch_matmul":
        left, right = shapes[0], shapes[1]
        batch = np.broadcast_shapes(left[:-2], right[:-2])
        width = right[-2] if call.option["transpose_right"] else right[-1]
        return 2.0 * math.prod(batch) * math.prod(left[-2:]) * width
    if call.operation in _PER_ELEMENT:
        number, which = _PER_ELEMENT[call.operation]
        return number * math.prod(shapes[which])
    if "_pool" in call.operation:
        return _pooling(call)
    if call.operation == "softmax":
        return 4.0 * math.prod(shapes[-1])  # maximum, difference and exponential, sum, quotient
    return 2.0 * math.prod(shapes[-1]) * shapes[0][-1]


def _pooling(call: LibraryCall) -> float:
    """An operation for each element of each window."""
    is_backward = call.operation.endswith("_backward")
    outputs = call.shapes[0] if is_backward else call.shapes[1]
    if call.operation.startswith("adaptive"):
        return float(math.prod(call.shapes[-1] if is_backward else call.shapes[0]))
    return float(math.prod(outputs) * math.prod(call.numbers("pool_size")))
