"""Matrix products, with operands read transposed where the kernel says so."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_BIAS,
    ARG_DST,
    ARG_SRC,
    ARG_WEIGHTS,
    arg_added,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary, row_major
from tvm_xengine.kernels.onednn.program import Program, ProgramBuilder

_Matrices = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides (in elements) of a stack of matrices."""


def linear(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """y[..., n] = sum_k x[..., k] * w[n, k]."""
    data, weight, output = call.shapes[0], call.shapes[1], call.shapes[-1]
    return _product(
        call, library, (0, _rows(data)), (1, _transposed(_plain(weight))), _rows(output)
    )


def linear_data_gradient(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """dx[..., k] = sum_n dy[..., n] * w[n, k]."""
    gradient, weight, output = call.shapes[0], call.shapes[1], call.shapes[-1]
    return _product(call, library, (0, _rows(gradient)), (1, _plain(weight)), _rows(output))


def linear_weight_gradient(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """dw[n, k] = sum_{...} dy[..., n] * x[..., k]."""
    data, gradient, output = call.shapes
    return _product(
        call, library, (1, _transposed(_rows(gradient))), (0, _rows(data)), _plain(output)
    )


def batch_matmul(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """left @ right, either of them transposed, summed over batch axes that the output lacks."""
    left, right, output = call.shapes[0], call.shapes[1], call.shapes[-1]
    turn_left, turn_right = (
        bool(call.option["transpose_left"]),
        bool(call.option["transpose_right"]),
    )
    if len(output) == 2 and turn_left and not turn_right and left[:-2] == right[:-2]:
        # Summed over the whole batch, it is one product of long matrices.
        return _product(
            call, library, (0, _transposed(_rows(left))), (1, _rows(right)), _plain(output)
        )
    first = _transposed(_plain(left)) if turn_left else _plain(left)
    second = _transposed(_plain(right)) if turn_right else _plain(right)
    return _batched(call, library, first, second, output)


def _batched(
    call: LibraryCall,
    library: OnednnLibrary,
    left: _Matrices,
    right: _Matrices,
    output: tuple[int, ...],
) -> Program | None:
    rank = len(output)
    if max(len(left[0]), len(right[0])) > rank:
        return None
    left, right = _with_rank(left, rank), _with_rank(right, rank)
    if any(
        max(a, b) != c for a, b, c in zip(left[0][:-2], right[0][:-2], output[:-2], strict=True)
    ):
        return None
    return _product(call, library, (0, left), (1, right), _plain(output))


def _product(
    call: LibraryCall,
    library: OnednnLibrary,
    left: tuple[int, _Matrices],
    right: tuple[int, _Matrices],
    output: _Matrices,
) -> Program | None:
    """The product of two operands, each with the number of its parameter."""
    if len(left[1][0]) != len(right[1][0]) or 0 in (*left[1][0], *right[1][0]):
        return None
    first, second, result = (library.plain(*matrices) for matrices in (left[1], right[1], output))
    columns = output[0][-1]
    bias_shape = (*[1] * (len(output[0]) - 1), columns)
    bias = library.plain(bias_shape) if call.bias else None
    added = (result,) if call.residual else ()
    attributes = library.attributes(added=added)
    primitive = library.describe_good("matmul", first, second, bias, result, attributes=attributes)
    if primitive is None:
        return None
    builder = ProgramBuilder(library)
    arguments = {
        ARG_SRC: builder.read(left[0], first, first),
        ARG_WEIGHTS: builder.read(right[0], second, second),
    }
    if isinstance(bias, MemoryDesc):
        arguments[ARG_BIAS] = builder.read(2, bias, bias)
    if call.residual:
        arguments[arg_added(0)] = builder.part(call.residual_input, 0, result)
    builder.compute(primitive, arguments, (ARG_DST, len(call.shapes) - 1, result, result))
    return builder.program()


def _plain(shape: Sequence[int]) -> _Matrices:
    return tuple(shape), row_major(shape)


def _rows(shape: Sequence[int]) -> _Matrices:
    """All but the last axis taken as one."""
    return _plain((math.prod(shape[:-1]), shape[-1]))


def _transposed(matrices: _Matrices) -> _Matrices:
    shape, strides = matrices
    return (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])


def _with_rank(matrices: _Matrices, rank: int) -> _Matrices:
    """The same with axes of extent 1 in front."""
    shape, strides = matrices
    missing = rank - len(shape)
    whole = math.prod(shape)
    return (*[1] * missing, *shape), (*[whole] * missing, *strides)
