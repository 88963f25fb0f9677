"""The operations that oneDNN computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.claim import Abilities
from tvm_xengine.kernels.onednn.library import NAME, OnednnLibrary
from tvm_xengine.kernels.onednn.primitives.convolution import (
    conv_data_gradient,
    conv_weight_gradient,
    convolution,
)
from tvm_xengine.kernels.onednn.primitives.layer_norm import layer_norm_backward, layer_norm_forward
from tvm_xengine.kernels.onednn.primitives.matmul import product
from tvm_xengine.kernels.onednn.primitives.max_pool import (
    max_pool_backward,
)
from tvm_xengine.kernels.onednn.primitives.softmax import softmax
from tvm_xengine.kernels.onednn.program import Program

Describe = Callable[[LibraryCall, OnednnLibrary], Program | None]
"""Makes the program of a call, None where oneDNN cannot or should not compute it."""

OPERATIONS: Mapping[str, Describe] = {
    "convolution": convolution,
    "conv_data_gradient": conv_data_gradient,
    "conv_weight_gradient": conv_weight_gradient,
    "linear": product,
    "linear_data_gradient": product,
    "linear_weight_gradient": product,
    "batch_matmul": product,
    "softmax": softmax,
    "layer_norm_forward": layer_norm_forward,
    "layer_norm_backward": layer_norm_backward,
    "max_pool_backward": max_pool_backward,
}
"""By the name of the training kernel; what generated code computes as fast is not among them."""

ABILITIES = Abilities(
    source=NAME,
    operations=frozenset(OPERATIONS),
    has_positions=frozenset({"max_pool_backward"}),
    adds_a_bias=frozenset({"convolution", "linear", "batch_matmul"}),
    adds_a_tensor=frozenset(
        {"convolution", "conv_data_gradient", "linear", "linear_data_gradient", "batch_matmul"}
    ),
)
"""oneDNN could clip a result at zero as well, but makes 0 of NaN then; generated code does that in place.
It adds a tensor where the operation is a matrix product."""


def describe(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """The program of a call, with layouts and memory as its number of threads wants them.

    None where oneDNN has no good implementation.
    """
    if (operation := OPERATIONS.get(call.operation)) is None:
        return None
    with library.threads(call.threads):
        return operation(call, library)
