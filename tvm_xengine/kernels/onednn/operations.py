"""Which operations oneDNN takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.avg_pool import (
    adaptive_avg_pool,
    adaptive_avg_pool_backward,
    avg_pool,
    avg_pool_backward,
)
from tvm_xengine.kernels.onednn.batch_norm import (
    batch_norm_add_relu_backward,
    batch_norm_add_relu_forward,
    batch_norm_backward,
    batch_norm_forward,
    batch_norm_inference,
    batch_norm_inference_backward,
)
from tvm_xengine.kernels.onednn.convolution import (
    conv_data_gradient,
    conv_weight_gradient,
    convolution,
)
from tvm_xengine.kernels.onednn.elementwise import ELEMENTWISE, elementwise
from tvm_xengine.kernels.onednn.layer_norm import layer_norm_backward, layer_norm_forward
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.matmul import (
    batch_matmul,
    linear,
    linear_data_gradient,
    linear_weight_gradient,
)
from tvm_xengine.kernels.onednn.max_pool import (
    max_pool_backward,
    max_pool_forward,
    windows_overlap,
)
from tvm_xengine.kernels.onednn.program import Program
from tvm_xengine.kernels.onednn.softmax import softmax

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
    "max_pool_forward": max_pool_forward,
    "max_pool_backward": max_pool_backward,
    "avg_pool": avg_pool,
    "avg_pool_backward": avg_pool_backward,
    "adaptive_avg_pool": adaptive_avg_pool,
    "adaptive_avg_pool_backward": adaptive_avg_pool_backward,
    "batch_norm_forward": batch_norm_forward,
    "batch_norm_backward": batch_norm_backward,
    "batch_norm_add_relu_forward": batch_norm_add_relu_forward,
    "batch_norm_add_relu_backward": batch_norm_add_relu_backward,
    "batch_norm_inference": batch_norm_inference,
    "batch_norm_inference_backward": batch_norm_inference_backward,
    **dict.fromkeys(sorted(ELEMENTWISE), elementwise),
}
"""By the name of the training kernel."""

_NEVER_FASTER = frozenset(
    {name for name in OPERATIONS if name.startswith(("avg_pool", "adaptive_avg", "batch_norm"))}
    | ELEMENTWISE
)
"""What generated code computes in the same time or less, by measurements."""

HAS_POSITIONS = frozenset({"max_pool_forward", "max_pool_backward"})
"""Operations with tensors of int32 beside those of float32."""

ENDS_WITH_BIAS_AND_RELU = frozenset({"convolution", "linear", "batch_matmul"})
"""Operations that add a bias and clip at zero as they write their result."""


ADDS_A_TENSOR = frozenset(
    {"convolution", "conv_data_gradient", "linear", "linear_data_gradient", "batch_matmul"}
)
"""Operations that may add a tensor of their result's shape to it, where they are matrix products."""


def is_often_faster(call: LibraryCall) -> bool:
    """Whether a call may be faster than generated code; maxima are where windows overlap."""
    if call.operation.startswith("max_pool"):
        return windows_overlap(call)
    return call.operation not in _NEVER_FASTER


def describe(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """The program of a call, with layouts and memory as its number of threads wants them."""
    with library.threads(call.threads):
        return OPERATIONS[call.operation](call, library)
