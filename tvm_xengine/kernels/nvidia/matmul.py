"""Matrix products by cuBLAS."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.matrices import Matrices, Operands, operands
from tvm_xengine.kernels.nvidia.function_call import FunctionCall, Number, Tensor, Word, scratch
from tvm_xengine.kernels.nvidia.library import CUBLAS, Handle, NvidiaLibraries, pointer

# Values of enumerations of library_types.h, cublas_api.h and cublasLt.h.
_FLOAT = 0
_COMPUTE_FLOAT = 68
"""Products and sums of float32, without TF32."""
_TRANSPOSED = 1
_TRANSPOSE_A, _TRANSPOSE_B = 3, 4
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_MAX_WORKSPACE, _REDUCTION_SCHEMES = 1, 3
_ALIGNMENTS = (5, 6, 7, 8)
_REDUCTIONS_IN_ORDER = 2 | 4
"""Sums of parts that are all written before they are added; in place they are added as they come."""

_FLOAT_BYTES = 4
_ALIGNMENT_BYTES = 64
"""Tensors of a step start at multiples of it."""


class _Algorithm(ctypes.Structure):
    """``cublasLtMatmulAlgo_t``."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class _Found(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class _Columns:
    """A stack of matrices as cuBLAS sees its memory: in columns.

    A row-major matrix is its transpose there, so the product is computed as ``right^T left^T``.
    """

    rows: int
    columns: int
    step: int
    is_turned: bool
    stride: int


def product(call: LibraryCall, libraries: NvidiaLibraries) -> FunctionCall | None:
    """The call for a product, None where cuBLAS has none.

    cuBLAS's best guess is taken among algorithms that compute the same bits every time and take no
    more temporary memory than the operation's tensors.
    """
    found = operands(call)
    if found is None:
        return None
    first, second, result = (_columns(each) for each in (found.right, found.left, found.output))
    if first is None or second is None or result is None:
        return None
    desc = libraries.object(CUBLAS, "MatmulDesc", _COMPUTE_FLOAT, _FLOAT)
    for attribute, each in ((_TRANSPOSE_A, first), (_TRANSPOSE_B, second)):
        value = ctypes.c_int32(_TRANSPOSED if each.is_turned else 0)
        _set(libraries, "MatmulDesc", desc, attribute, value)
    count = math.prod(found.output.shape[:-2])
    layouts = [_layout(libraries, each, count) for each in (first, second, result)]
    chosen = _best(libraries, desc, layouts, _tensors_bytes(found))
    if chosen is None:
        return None
    a, b, c = (Word(layout.address) for layout in layouts)
    output = Tensor(len(call.shapes) - 1)
    return FunctionCall(
        library=CUBLAS,
        function="cublasLtMatmul",
        arguments=(
            *(Word(libraries.handle(CUBLAS)), Word(desc.address), Word(libraries.address_of(1))),
            *(Tensor(found.right_at), a, Tensor(found.left_at), b),
            *(Word(libraries.address_of(0)), output, c, output, c),
            Word(ctypes.addressof(chosen.algorithm)),
            *scratch(chosen.workspace_bytes),
            Number(0, "int64"),  # the default stream
        ),
        scratch_bytes=chosen.workspace_bytes,
        algorithm="_".join(f"{word:x}" for word in chosen.algorithm.data),
        tensors_bytes=_tensors_bytes(found),
        keeps=(libraries, desc, *layouts, chosen),
    )


def _columns(matrices: Matrices) -> _Columns | None:
    """None where its stack is not one with equal strides."""
    *stack, rows, columns = matrices.shape
    *strides, down, across = matrices.strides
    if all(extent == 1 for extent in stack):
        stride = 0
    elif all(
        step == strides[-1] * math.prod(stack[axis + 1 :]) or stack[axis] == 1
        for axis, step in enumerate(strides)
    ):
        stride = strides[-1]
    else:
        return None
    if across == 1:
        return _Columns(columns, rows, max(down, columns), False, stride)
    return _Columns(rows, columns, max(across, rows), True, stride)


def _tensors_bytes(found: Operands) -> int:
    shapes = (found.left.shape, found.right.shape, found.output.shape)
    return sum(_FLOAT_BYTES * math.prod(shape) for shape in shapes)


def _layout(libraries: NvidiaLibraries, columns: _Columns, count: int) -> Handle:
    layout = libraries.object(
        *(CUBLAS, "MatrixLayout", _FLOAT, ctypes.c_uint64(columns.rows)),
        *(ctypes.c_uint64(columns.columns), ctypes.c_int64(columns.step)),
    )
    if count > 1:
        _set(libraries, "MatrixLayout", layout, _BATCH_COUNT, ctypes.c_int32(count))
        _set(libraries, "MatrixLayout", layout, _BATCH_STRIDE, ctypes.c_int64(columns.stride))
    return layout


def _best(
    libraries: NvidiaLibraries, desc: Handle, layouts: list[Handle], limit_bytes: int
) -> _Found | None:
    preference = libraries.object(CUBLAS, "MatmulPreference")
    kind = "MatmulPreference"
    _set(libraries, kind, preference, _MAX_WORKSPACE, ctypes.c_uint64(limit_bytes))
    schemes = ctypes.c_uint32(_REDUCTIONS_IN_ORDER)
    _set(libraries, kind, preference, _REDUCTION_SCHEMES, schemes)
    for attribute in _ALIGNMENTS:
        _set(libraries, kind, preference, attribute, ctypes.c_uint32(_ALIGNMENT_BYTES))
    a, b, c = (pointer(layout.address) for layout in layouts)
    found, count = _Found(), ctypes.c_int()
    status = libraries.status(
        *(CUBLAS, "cublasLtMatmulAlgoGetHeuristic", pointer(libraries.handle(CUBLAS))),
        *(pointer(desc.address), a, b, c, c, pointer(preference.address)),
        *(1, ctypes.byref(found), ctypes.byref(count)),
    )
    return found if not status and count.value and not found.status else None


def _set(
    libraries: NvidiaLibraries,
    kind: str,
    handle: Handle,
    attribute: int,
    value: ctypes.c_int32 | ctypes.c_uint32 | ctypes.c_int64 | ctypes.c_uint64,
) -> None:
    libraries.call(
        *(CUBLAS, f"cublasLt{kind}SetAttribute", pointer(handle.address), attribute),
        *(ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))),
    )
