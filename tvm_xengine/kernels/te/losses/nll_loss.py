"""Negative log likelihood of labels, given the logarithms of the probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.losses.labels import Labels, labelled


def nll_loss_forward(
    predictions: te.Tensor,
    labels: te.Tensor,
    *weights: te.Tensor,
    axis: int,
    ignore_index: int,
    reduction: str,
) -> list[te.Tensor]:
    """The loss (mean by weight, sum, or one number per row) and the sum of the weights."""
    rows = labelled(predictions, labels, weights, axis, ignore_index)

    def value(row: Sequence[Expr]) -> Expr:
        label = rows.label(row)
        return rows.counted(row, -rows.weight_of(label) * predictions(*rows.at(row, label)))

    counted = rows.total_weight()
    if reduction == "none":
        return [te.compute(labels.shape, lambda *row: value(row), name="loss"), counted]
    total = rows.total(value, "total")
    if reduction == "sum":
        return [total, counted]
    return [te.compute((), lambda: total() / counted(), name="loss"), counted]


def nll_loss_backward(
    output_gradient: te.Tensor,
    labels: te.Tensor,
    counted: te.Tensor,
    *weights: te.Tensor,
    axis: int,
    classes: int,
    ignore_index: int,
    reduction: str,
) -> te.Tensor:
    """-w[t] at the label t of each row (divided by the sum of the weights for the mean)."""
    rows = Labels(labels, weights, axis, classes, ignore_index, str(output_gradient.dtype))
    zero = tvm.tirx.const(0, output_gradient.dtype)
    shape = (*labels.shape[:axis], classes, *labels.shape[axis:])

    def gradient(*i: Var) -> Expr:
        row = rows.row(i)
        above = output_gradient(*row) if reduction == "none" else output_gradient()
        if reduction == "mean":
            above = above / counted()
        value = tvm.tirx.Select(rows.hits(row, i[axis]), -rows.weight_of(i[axis]) * above, zero)
        return rows.counted(row, value)

    return te.compute(shape, gradient, name="predictions_gradient")
