"""Convolutions and their gradients by cuDNN."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.matrices import row_major
from tvm_xengine.kernels.library.window import Window, window
from tvm_xengine.kernels.nvidia.function_call import FunctionCall, Number, Tensor, Word, scratch
from tvm_xengine.kernels.nvidia.library import CUDNN, Handle, NvidiaLibraries, ints, pointer

# Values of enumerations of cudnn_graph.h, cudnn_ops.h and cudnn_cnn.h.
_FLOAT = 0
_NCHW = 0
_CROSS_CORRELATION = 1
_DETERMINISTIC = 1
_FMA_MATH = 3
"""Products of float32, none of numbers cut to TF32."""

_FLOAT_BYTES = 4
_MOST_WORKSPACE = 2
"""Temporary memory by that of operands and result. Where an algorithm copies all of them into another layout,
as the gradient of a weight does on an H200, it takes as much as they and some padding."""
_MOST_ALGORITHMS = 10
"""cuDNN has eight, and names some of them twice."""


@dataclass(frozen=True)
class _Kind:
    """Which function computes an operation, and of what.

    Attributes
    ----------
    operands
        Name and number of the two parameters, in the order of the function.
    """

    function: str
    operands: tuple[tuple[str, int], tuple[str, int]]
    result: str
    algorithms: frozenset[int]


_KINDS = {
    "convolution": _Kind(
        "Forward", (("data", 0), ("weight", 1)), "output", frozenset({0, 1, 2, 6})
    ),
    "conv_data_gradient": _Kind(
        "BackwardData", (("weight", 1), ("output", 0)), "data", frozenset({1, 4})
    ),
    "conv_weight_gradient": _Kind(
        "BackwardFilter", (("data", 0), ("output", 1)), "weight", frozenset({1})
    ),
}
"""The algorithms are products of matrices and Winograd's with tiles of 2 x 2, which round as sums of
float32 do. Fourier transforms and larger tiles lose digits."""


class _Performance(ctypes.Structure):
    """``cudnnConvolutionFwdAlgoPerf_t``, and those of the gradients."""

    _fields_ = (
        ("algorithm", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


def convolution(call: LibraryCall, libraries: NvidiaLibraries) -> FunctionCall | None:
    """The call for a convolution or a gradient, None where cuDNN has none.

    cuDNN's own order of its algorithms decides, among those that compute the same bits every time and
    take little temporary memory.
    """
    shape = window(call)
    if shape is None or shape.before != shape.after or not 1 <= len(shape.strides) <= 3:
        return None
    described = _Described(_KINDS[call.operation], _with_two_axes(shape), libraries)
    limit_bytes = _MOST_WORKSPACE * described.tensors_bytes
    for algorithm in described.algorithms():
        size_bytes = described.workspace_bytes(algorithm)
        if size_bytes is not None and size_bytes <= limit_bytes:
            return described.call(algorithm, size_bytes, len(call.shapes) - 1)
    return None


class _Described:
    """The descriptors of an operation."""

    def __init__(self, kind: _Kind, shape: Window, libraries: NvidiaLibraries) -> None:
        self._kind, self._libraries = kind, libraries
        self._shapes = {"data": shape.data, "weight": shape.weight, "output": shape.output}
        self._parts = {
            "data": self._tensor(shape.data),
            "weight": self._filter(shape.weight),
            "output": self._tensor(shape.output),
        }
        self._window = self._convolution(shape)

    @property
    def tensors_bytes(self) -> int:
        """Of operands and result."""
        return sum(_FLOAT_BYTES * math.prod(shape) for shape in self._shapes.values())

    def algorithms(self) -> Iterator[int]:
        """Those that may be used, the best first as cuDNN guesses."""
        found, count = (_Performance * _MOST_ALGORITHMS)(), ctypes.c_int()
        status = self._libraries.status(
            *(CUDNN, f"cudnnGetConvolution{self._kind.function}Algorithm_v7"),
            *(self._handle, *self._descriptors, _MOST_ALGORITHMS),
            *(ctypes.byref(count), found),
        )
        for each in found[: 0 if status else count.value]:
            is_exact = each.determinism == _DETERMINISTIC
            if not each.status and is_exact and each.algorithm in self._kind.algorithms:
                yield each.algorithm

    def workspace_bytes(self, algorithm: int) -> int | None:
        """Temporary memory of an algorithm; None where it does not compute this."""
        size = ctypes.c_size_t()
        status = self._libraries.status(
            *(CUDNN, f"cudnnGetConvolution{self._kind.function}WorkspaceSize"),
            *(self._handle, *self._descriptors, algorithm, ctypes.byref(size)),
        )
        return None if status else int(size.value)

    def call(self, algorithm: int, workspace_bytes: int, result: int) -> FunctionCall:
        """The call with an algorithm."""
        kind, libraries = self._kind, self._libraries
        operands = (
            each
            for name, number in kind.operands
            for each in (Word(self._parts[name].address), Tensor(number))
        )
        return FunctionCall(
            library=CUDNN,
            function=f"cudnnConvolution{kind.function}",
            arguments=(
                Word(libraries.handle(CUDNN)),
                Word(libraries.address_of(1)),
                *operands,
                Word(self._window.address),
                Number(algorithm),
                *scratch(workspace_bytes),
                Word(libraries.address_of(0)),
                Word(self._parts[kind.result].address),
                Tensor(result),
            ),
            scratch_bytes=workspace_bytes,
            algorithm=f"{kind.function}_{algorithm}",
            tensors_bytes=self.tensors_bytes,
            keeps=(libraries, self._window, *self._parts.values()),
        )

    @property
    def _handle(self) -> ctypes.c_void_p:
        return pointer(self._libraries.handle(CUDNN))

    @property
    def _descriptors(self) -> tuple[ctypes.c_void_p, ...]:
        """As the functions about algorithms take them."""
        first, second = (self._parts[name] for name, _ in self._kind.operands)
        parts = (first, second, self._window, self._parts[self._kind.result])
        return tuple(pointer(part.address) for part in parts)

    def _tensor(self, shape: Sequence[int]) -> Handle:
        made = self._libraries.object(CUDNN, "TensorDescriptor")
        self._libraries.call(
            *(CUDNN, "cudnnSetTensorNdDescriptor", pointer(made.address)),
            *(_FLOAT, len(shape), ints(shape), ints(row_major(shape))),
        )
        return made

    def _filter(self, shape: Sequence[int]) -> Handle:
        made = self._libraries.object(CUDNN, "FilterDescriptor")
        self._libraries.call(
            *(CUDNN, "cudnnSetFilterNdDescriptor", pointer(made.address)),
            *(_FLOAT, _NCHW, len(shape), ints(shape)),
        )
        return made

    def _convolution(self, shape: Window) -> Handle:
        made = self._libraries.object(CUDNN, "ConvolutionDescriptor")
        address = pointer(made.address)
        numbers = (ints(shape.before), ints(shape.strides), ints(shape.dilation))
        self._libraries.call(
            *(CUDNN, "cudnnSetConvolutionNdDescriptor", address),
            *(len(shape.strides), *numbers, _CROSS_CORRELATION, _FLOAT),
        )
        self._libraries.call(CUDNN, "cudnnSetConvolutionGroupCount", address, shape.groups)
        self._libraries.call(CUDNN, "cudnnSetConvolutionMathType", address, _FMA_MATH)
        return made


def _with_two_axes(shape: Window) -> Window:
    """The same convolution over at least two axes, which cuDNN wants."""
    if len(shape.strides) > 1:
        return shape
    data, weight, output = (
        (*extents[:2], 1, *extents[2:]) for extents in (shape.data, shape.weight, shape.output)
    )
    return Window(
        *(data, weight, output, shape.groups),
        *((1, *shape.strides), (1, *shape.dilation), (0, *shape.before), (0, *shape.after)),
    )
