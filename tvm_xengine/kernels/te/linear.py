"""Matrix products with transposed operands, and their gradients, without transposing copies."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.accumulate import summed


def linear(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """y[..., n] = sum_k x[..., k] * w[n, k]."""
    *outer, depth = data.shape
    k = te.reduce_axis((0, depth), name="k")
    return summed(
        (*outer, weight.shape[0]),
        lambda *i: data(*i[:-1], k) * weight(i[-1], k),
        [k],
        data.dtype,
        "output",
    )


def linear_data_gradient(output_gradient: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """dx[..., k] = sum_n dy[..., n] * w[n, k]."""
    *outer, width = output_gradient.shape
    n = te.reduce_axis((0, width), name="n")
    return summed(
        (*outer, weight.shape[1]),
        lambda *i: output_gradient(*i[:-1], n) * weight(n, i[-1]),
        [n],
        weight.dtype,
        "data_gradient",
    )


def linear_weight_gradient(data: te.Tensor, output_gradient: te.Tensor) -> te.Tensor:
    """dw[n, k] = sum_{...} dy[..., n] * x[..., k]."""
    *outer, depth = data.shape
    over = [te.reduce_axis((0, extent), name=f"m{a}") for a, extent in enumerate(outer)]
    return summed(
        (output_gradient.shape[-1], depth),
        lambda n, k: output_gradient(*over, n) * data(*over, k),
        over,
        data.dtype,
        "weight_gradient",
    )


def batch_matmul(
    left: te.Tensor,
    right: te.Tensor,
    *,
    transpose_left: bool,
    transpose_right: bool,
    output_batch: tuple[int, ...],
) -> te.Tensor:
    """left @ right over the last two axes, either of them transposed on the fly.

    Batch axes broadcast as in numpy. Where ``output_batch`` is 1 (or shorter) and an operand is
    not, the product is summed over that axis: the gradient of a broadcast.
    """
    left_batch, right_batch = left.shape[:-2], right.shape[:-2]
    rows = left.shape[-1] if transpose_left else left.shape[-2]
    depth = left.shape[-2] if transpose_left else left.shape[-1]
    columns = right.shape[-2] if transpose_right else right.shape[-1]
    rank = max(len(left_batch), len(right_batch), len(output_batch))
    full = [max(_extent(left_batch, a - rank), _extent(right_batch, a - rank)) for a in range(rank)]
    wanted = [_extent(output_batch, a - rank) for a in range(rank)]
    added = {
        a: te.reduce_axis((0, full[a]), name=f"b{a}") for a in range(rank) if wanted[a] < full[a]
    }
    k = te.reduce_axis((0, depth), name="k")

    def product(*i: Var) -> Expr:
        *position, m, n = i
        padded = [None] * (rank - len(position)) + position
        batch = [added.get(a, padded[a]) for a in range(rank)]
        at_left = (k, m) if transpose_left else (m, k)
        at_right = (n, k) if transpose_right else (k, n)
        return left(*_broadcast(batch, left_batch), *at_left) * right(
            *_broadcast(batch, right_batch), *at_right
        )

    shape, axes = (*output_batch, rows, columns), [*added.values(), k]
    return summed(shape, product, axes, left.dtype, "product")


def _extent(batch: Sequence[Expr], axis_from_end: int) -> int:
    return int(batch[axis_from_end]) if -axis_from_end <= len(batch) else 1


def _broadcast(position: Sequence[Expr], batch: Sequence[Expr]) -> list[Expr]:
    offset = len(position) - len(batch)
    return [0 if int(extent) == 1 else position[offset + a] for a, extent in enumerate(batch)]
