"""The operands of the matrix products that calls stand for, some of them read transposed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_xengine.kernels.library.call import LibraryCall


@dataclass(frozen=True)
class Matrices:
    """A stack of matrices in a tensor: shape, and strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def transposed(self) -> Matrices:
        """Rows as columns."""
        shape, strides = self.shape, self.strides
        return Matrices(
            (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
        )

    def with_rank(self, rank: int) -> Matrices:
        """The same with axes of extent 1 in front."""
        missing = rank - len(self.shape)
        whole = math.prod(self.shape)
        return Matrices((*[1] * missing, *self.shape), (*[whole] * missing, *self.strides))


@dataclass(frozen=True)
class Operands:
    """``output = left @ right`` of parameters of a call.

    Attributes
    ----------
    left_at, right_at
        Numbers of the parameters.
    """

    left_at: int
    left: Matrices
    right_at: int
    right: Matrices
    output: Matrices


def operands(call: LibraryCall) -> Operands | None:
    """The product of stacks of one rank; None where the call is none, or is empty.

    Extents of a stack are those of the output, or 1.
    """
    found = _operands(call)
    if found is None or 0 in (*found.left.shape, *found.right.shape):
        return None
    return found


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a compact tensor, in elements."""
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def _operands(call: LibraryCall) -> Operands | None:
    first, second, output = call.shapes[0], call.shapes[1], call.shapes[-1]
    match call.operation:
        case "linear":  # y[..., n] = sum_k x[..., k] * w[n, k]
            return Operands(0, _rows(first), 1, _plain(second).transposed, _rows(output))
        case "linear_data_gradient":  # dx[..., k] = sum_n dy[..., n] * w[n, k]
            return Operands(0, _rows(first), 1, _plain(second), _rows(output))
        case "linear_weight_gradient":  # dw[n, k] = sum_{...} dy[..., n] * x[..., k]
            return Operands(1, _rows(second).transposed, 0, _rows(first), _plain(output))
        case "batch_matmul":
            return _batched(call, first, second, output)
    return None


def _batched(
    call: LibraryCall, first: tuple[int, ...], second: tuple[int, ...], output: tuple[int, ...]
) -> Operands | None:
    """left @ right, either of them transposed, summed over batch axes that the output lacks."""
    turn_left, turn_right = (
        bool(call.option["transpose_left"]),
        bool(call.option["transpose_right"]),
    )
    if len(output) == 2 and turn_left and not turn_right and first[:-2] == second[:-2]:
        # Summed over the whole batch, it is one product of long matrices.
        return Operands(0, _rows(first).transposed, 1, _rows(second), _plain(output))
    left = _plain(first).transposed if turn_left else _plain(first)
    right = _plain(second).transposed if turn_right else _plain(second)
    rank = len(output)
    if max(len(first), len(second)) > rank:
        return None
    left, right = left.with_rank(rank), right.with_rank(rank)
    if any(
        max(a, b) != c
        for a, b, c in zip(left.shape[:-2], right.shape[:-2], output[:-2], strict=True)
    ):
        return None
    return Operands(0, left, 1, right, _plain(output))


def _plain(shape: Sequence[int]) -> Matrices:
    return Matrices(tuple(shape), row_major(shape))


def _rows(shape: Sequence[int]) -> Matrices:
    """All but the last axis taken as one."""
    return _plain((math.prod(shape[:-1]), shape[-1]))
