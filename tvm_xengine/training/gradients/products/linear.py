"""Gradients of matrix products."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import relax

from tvm_xengine.kernels.te.accumulate import sum_dtype
from tvm_xengine.kernels.te.linear import (
    batch_matmul,
    linear,
    linear_data_gradient,
    linear_weight_gradient,
)
from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.gradients.products.accumulate import in_type_of, narrowed
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site

MATMUL = "relax.matmul"
LINEAR = "tvm_xengine.linear"
TRANSPOSED_MATMUL = "tvm_xengine.matmul_transposed"


def _linear(emitter: Emitter, site: Site) -> Linearized:
    data, weight = site.operands
    output = emitter.call(linear, [data, weight], site.name)

    def pullback(gradients: Gradients) -> Gradients:
        (gradient,) = gradients
        return (
            emitter.call(linear_data_gradient, [gradient, weight], site.grad_name(0))
            if site.needs[0]
            else None,
            emitter.call(linear_weight_gradient, [data, gradient], site.grad_name(1))
            if site.needs[1]
            else None,
        )

    return Linearized((output,), pullback)


def _matmul(emitter: Emitter, site: Site) -> Linearized:
    left, right = site.operands
    dtype = str(site.source.results[0].ty.dtype)
    product = relax.op.matmul(left, right, out_dtype=sum_dtype(dtype))
    output = narrowed(emitter, product, dtype, site.name)
    return Linearized((output,), lambda gradients: _pull_product(emitter, site, gradients, False))


def _matmul_transposed(emitter: Emitter, site: Site) -> Linearized:
    left, right = site.operands
    output = emitter.call(
        batch_matmul,
        [left, right],
        site.name,
        transpose_left=False,
        transpose_right=True,
        output_batch=site.shape[:-2],
    )
    return Linearized((output,), lambda gradients: _pull_product(emitter, site, gradients, True))


@dataclass(frozen=True)
class _Factor:
    """A matrix (stack) in a product, and whether it is read transposed."""

    value: relax.Expr
    transposed: bool


def _pull_product(
    emitter: Emitter, site: Site, gradients: Gradients, transposed: bool
) -> Gradients:
    """With y = a b: da = dy b^T and db = a^T dy; for y = a b^T: da = dy b and db = dy^T a."""
    left, right = site.operands
    left_is_row, right_is_column = len(shape_of(left)) == 1, len(shape_of(right)) == 1
    gradient = in_type_of(emitter, gradients[0], left, site.name)
    if left_is_row or right_is_column:
        left = _as_matrix(emitter, left, left_is_row, row=True)
        right = _as_matrix(emitter, right, right_is_column, row=False)
        batch = site.shape[: len(site.shape) - (not left_is_row) - (not right_is_column)]
        rows, columns = shape_of(left)[-2], shape_of(right)[-1]
        gradient = emitter.bind(
            relax.op.reshape(gradient, (*batch, rows, columns)), f"{site.name}_backward_matrix"
        )

    def product(first: _Factor, second: _Factor, position: int, like: relax.Expr) -> relax.Expr:
        made = emitter.call(
            batch_matmul,
            [first.value, second.value],
            site.grad_name(position),
            transpose_left=first.transposed,
            transpose_right=second.transposed,
            output_batch=shape_of(like)[:-2],
        )
        shape = shape_of(site.operands[position])
        if shape_of(made) == shape:
            return made
        return emitter.bind(relax.op.reshape(made, shape), f"{site.grad_name(position)}_vector")

    result: list[relax.Expr | None] = [None, None]
    if site.needs[0]:
        result[0] = product(_Factor(gradient, False), _Factor(right, not transposed), 0, left)
    if site.needs[1] and transposed:
        result[1] = product(_Factor(gradient, True), _Factor(left, False), 1, right)
    elif site.needs[1]:
        result[1] = product(_Factor(left, True), _Factor(gradient, False), 1, right)
    return tuple(result)


def _as_matrix(emitter: Emitter, value: relax.Expr, is_vector: bool, *, row: bool) -> relax.Expr:
    if not is_vector:
        return value
    (length,) = shape_of(value)
    shape = (1, length) if row else (length, 1)
    return emitter.bind(relax.op.reshape(value, shape), "vector_as_matrix")


def merge_transposed_matmul(ops: ForwardOps) -> ForwardOps:
    """Products that read their right factor transposed, instead of transposing a copy.

    ``matmul(x, permute_dims(w))`` becomes a linear layer where `w` is a matrix, and a product of
    stacks with a transposed right factor otherwise. Transposes without other readers are
    removed as dead code.
    """
    transposes = {op.results[0]: op for op in ops.ops if _swaps_last_two(op)}
    merged = [
        _merged(op, transposes[op.operands[1]])
        if op.op == MATMUL and op.operands[1] in transposes and len(shape_of(op.operands[0])) > 1
        else op
        for op in ops.ops
    ]
    return replace(ops, ops=tuple(merged)).live()


def _merged(matmul: ForwardOp, transpose: ForwardOp) -> ForwardOp:
    (right,) = transpose.operands
    kind = LINEAR if len(shape_of(right)) == 2 else TRANSPOSED_MATMUL
    return replace(matmul, op=kind, operands=(matmul.operands[0], right))


def _swaps_last_two(op: ForwardOp) -> bool:
    if op.op != "relax.permute_dims":
        return False
    rank = len(shape_of(op.operands[0]))
    axes = op.call.attrs.axes
    if axes is None:
        return rank == 2
    order = [int(axis) % rank for axis in axes]
    return rank >= 2 and order == [*range(rank - 2), rank - 1, rank - 2]


RULES: dict[str, Rule] = {
    MATMUL: _matmul,
    LINEAR: _linear,
    TRANSPOSED_MATMUL: _matmul_transposed,
}
