"""Arithmetic on stacks of matrices, of shape (batch, rows, columns)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Expr
from tvm_xengine.relax_ir.matrix_ops import matrix_op, value_and_change
from tvm_xengine.relax_ir.types import Array, static_shape


@dataclass(frozen=True)
class Stacks:
    """Expressions on stacks of matrices, bound by a builder."""

    builder: Builder

    def of(self, x: Expr, batch: Sequence[int] | None = None) -> Expr:
        """A tensor of matrices as a stack, its leading axes broadcast to `batch`."""
        *outer, rows, columns = static_shape(x.ty)
        if batch is not None and tuple(outer) != tuple(batch):
            x = self.builder.emit(relax.op.broadcast_to(x, (*batch, rows, columns)))
            outer = list(batch)
        return self.shaped(x, (prod(outer), rows, columns))

    def shaped(self, x: Expr, shape: Sequence[int]) -> Expr:
        """The same elements in another shape."""
        if static_shape(x.ty) == tuple(shape):
            return x
        if prod(shape) == 0:  # 0 means another length to a reshape
            return self.builder.emit(relax.op.zeros(tuple(shape), str(x.ty.dtype)))
        return self.builder.emit(relax.op.reshape(x, tuple(shape)))

    def fixed(self, x: Expr) -> Expr:
        """The tensor, through which no gradient flows."""
        return self.builder.emit(relax.op.grad.no_grad(x))

    def call(self, name: str, *operands: Expr | int) -> list[Expr]:
        """The results of an operator on matrices."""
        made = self.builder.emit(matrix_op(name, *operands))
        if not isinstance(made.ty, relax.TupleType):
            return [made]
        fields = range(len(made.ty.fields))
        return [self.builder.emit(relax.TupleGetItem(made, k)) for k in fields]

    def tied(self, value: Expr, change: Expr) -> Expr:
        """The value with the derivative of the change."""
        return self.builder.emit(value_and_change(value, change))

    def product(self, *factors: Expr) -> Expr:
        """The matrix product, from left to right."""
        result, *others = factors
        for factor in others:
            result = self.builder.emit(relax.op.matmul(result, factor))
        return result

    def turned(self, x: Expr) -> Expr:
        """The transposed matrices."""
        return self.builder.emit(relax.op.permute_dims(x, [0, 2, 1]))

    def plus(self, x: Expr, y: Expr) -> Expr:
        """The sum."""
        return self.builder.emit(relax.op.add(x, y))

    def minus(self, x: Expr, y: Expr) -> Expr:
        """The difference."""
        return self.builder.emit(relax.op.subtract(x, y))

    def times(self, x: Expr, y: Expr | float) -> Expr:
        """The product of elements."""
        if isinstance(y, int | float):
            y = relax.const(y, str(x.ty.dtype))
        return self.builder.emit(relax.op.multiply(x, y))

    def lower(self, x: Expr, k: int = 0) -> Expr:
        """Zeros above the k-th diagonal."""
        return self._where(x, lambda rows, columns: np.tri(rows, columns, k) > 0)

    def upper(self, x: Expr, k: int = 0) -> Expr:
        """Zeros below the k-th diagonal."""
        return self._where(x, lambda rows, columns: np.tri(rows, columns, k - 1) == 0)

    def block(self, x: Expr, rows: tuple[int, int], columns: tuple[int, int]) -> Expr:
        """Rows and columns from the first to before the last."""
        if (rows, columns) == tuple((0, extent) for extent in static_shape(x.ty)[1:]):
            return x
        begin, end = [rows[0], columns[0]], [rows[1], columns[1]]
        return self.builder.emit(relax.op.strided_slice(x, [1, 2], begin, end))

    def diagonal(self, x: Expr) -> Expr:
        """The diagonals as rows, of shape (batch, length)."""
        rows, columns = static_shape(x.ty)[1:]
        kept = self._where(x, lambda rows, columns: np.eye(rows, columns) > 0)
        return self.builder.emit(relax.op.sum(kept, [2 if rows <= columns else 1]))

    def on_diagonal(self, x: Expr) -> Expr:
        """Matrices with rows of shape (batch, length) as diagonals, and zeros beside them."""
        size = static_shape(x.ty)[-1]
        wide = self.builder.emit(relax.op.expand_dims(x, 1))
        full = self.builder.emit(relax.op.broadcast_to(wide, (static_shape(x.ty)[0], size, size)))
        return self._where(full, lambda rows, columns: np.eye(rows, columns) > 0)

    def identity(self, size: int, like: Expr, batch: int = 1) -> Expr:
        """A stack of unit matrices."""
        dtype = str(like.ty.dtype)
        return relax.const(np.broadcast_to(np.eye(size, dtype=dtype), (batch, size, size)), dtype)

    def _where(self, x: Expr, keep: Callable[[int, int], Array]) -> Expr:
        mask = keep(*static_shape(x.ty)[1:])
        zero = relax.const(0, str(x.ty.dtype))
        return self.builder.emit(relax.op.where(relax.const(mask, "bool"), x, zero))


def batch_of(*tensors: Expr) -> tuple[int, ...]:
    """What the leading axes of tensors of matrices broadcast to."""
    return np.broadcast_shapes(*(static_shape(one.ty)[:-2] for one in tensors))
