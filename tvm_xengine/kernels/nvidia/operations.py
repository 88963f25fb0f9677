"""The operations that cuDNN and cuBLAS compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.claim import Abilities
from tvm_xengine.kernels.nvidia.convolution import convolution
from tvm_xengine.kernels.nvidia.function_call import FunctionCall
from tvm_xengine.kernels.nvidia.library import NAME, NvidiaLibraries
from tvm_xengine.kernels.nvidia.matmul import product

_OPERATIONS: Mapping[str, Callable[[LibraryCall, NvidiaLibraries], FunctionCall | None]] = {
    "convolution": convolution,
    "conv_data_gradient": convolution,
    "conv_weight_gradient": convolution,
    "linear": product,
    "linear_data_gradient": product,
    "linear_weight_gradient": product,
    "batch_matmul": product,
}
"""By the name of the training kernel."""

ABILITIES = Abilities(NAME, frozenset(_OPERATIONS))


def describe(call: LibraryCall, libraries: NvidiaLibraries) -> FunctionCall | None:
    """What computes a call, None where the libraries have nothing for it.

    It is the same each time with the same libraries and GPU.
    """
    return _OPERATIONS[call.operation](call, libraries)
