"""The operations that oneDNN computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.primitives.convolution import (
    conv_data_gradient,
    conv_weight_gradient,
    convolution,
)
from tvm_xengine.kernels.onednn.primitives.layer_norm import layer_norm_backward, layer_norm_forward
from tvm_xengine.kernels.onednn.primitives.matmul import (
    batch_matmul,
    linear,
    linear_data_gradient,
    linear_weight_gradient,
)
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
    "linear": linear,
    "linear_data_gradient": linear_data_gradient,
    "linear_weight_gradient": linear_weight_gradient,
    "batch_matmul": batch_matmul,
    "softmax": softmax,
    "layer_norm_forward": layer_norm_forward,
    "layer_norm_backward": layer_norm_backward,
    "max_pool_backward": max_pool_backward,
}
"""By the name of the training kernel; what generated code computes as fast is not among them."""

HAS_POSITIONS = frozenset({"max_pool_backward"})
"""Operations with tensors of int32 in addition to those of float32."""

ADDS_A_BIAS = frozenset({"convolution", "linear", "batch_matmul"})
"""Operations that add a bias as they write their result. oneDNN could clip it at zero as well, but makes
0 of NaN then; generated code does that in place."""

ADDS_A_TENSOR = frozenset(
    {"convolution", "conv_data_gradient", "linear", "linear_data_gradient", "batch_matmul"}
)
"""Operations that may add a tensor of their result's shape to it, where they are matrix products."""


def describe(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """The program of a call, with layouts and memory as its number of threads wants them.

    None where oneDNN has no good implementation.
    """
    if (operation := OPERATIONS.get(call.operation)) is None:
        return None
    with library.threads(call.threads):
        return operation(call, library)
