"""Class indices in losses: which rows count, with what weight, and what is out of range.

A label outside 0 .. classes - 1 that is not the ignored one makes the loss NaN, where PyTorch
raises an error; nothing is read outside the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm
from tvm import te
from tvm.tirx import Expr, IterVar


@dataclass(frozen=True)
class Labels:
    """Labels of rows of scores.

    Attributes
    ----------
    indices
        Class of each row: the shape of the scores without the class axis.
    weights
        Nothing, or one weight per class.
    """

    indices: te.Tensor
    weights: tuple[te.Tensor, ...]
    axis: int
    classes: int
    ignore_index: int
    dtype: str

    def counts(self, row: Sequence[Expr]) -> Expr:
        """Whether a row is not ignored."""
        return self._given(row) != tvm.tirx.const(self.ignore_index, self._wide)

    def inside(self, row: Sequence[Expr]) -> Expr:
        """Whether the label of a row is a class."""
        label = self._given(row)
        first, end = (tvm.tirx.const(k, self._wide) for k in (0, self.classes))
        return tvm.tirx.all(label >= first, label < end)

    def label(self, row: Sequence[Expr]) -> Expr:
        """The label of a row, or 0 where it is no class."""
        label = self._given(row)
        zero = tvm.tirx.const(0, self._wide)
        return tvm.tirx.Select(self.inside(row), label, zero).astype("int32")

    def hits(self, row: Sequence[Expr], k: Expr) -> Expr:
        """Whether class `k` is the label of a row."""
        return self._given(row) == k.astype(self._wide)

    def _given(self, row: Sequence[Expr]) -> Expr:
        return self.indices(*row).astype(self._wide)

    @property
    def _wide(self) -> str:
        """A type that holds the number of classes and the ignored label."""
        return "int64" if self.indices.dtype == "int64" else "int32"

    def weight_of(self, k: Expr) -> Expr:
        """The weight of a class."""
        return self.weights[0](k) if self.weights else tvm.tirx.const(1, self.dtype)

    def at(self, row: Sequence[Expr], k: Expr) -> tuple[Expr, ...]:
        """Where the score of class `k` in a row is."""
        return (*row[: self.axis], k, *row[self.axis :])

    def row(self, position: Sequence[Expr]) -> tuple[Expr, ...]:
        """The row that a position in the scores belongs to."""
        return (*position[: self.axis], *position[self.axis + 1 :])

    def counted(self, row: Sequence[Expr], value: Expr) -> Expr:
        """The value where the row counts, 0 where it is ignored, NaN where its label is no class."""
        zero, nan = (tvm.tirx.const(k, self.dtype) for k in (0, float("nan")))
        checked = tvm.tirx.Select(self.inside(row), value, nan)
        return tvm.tirx.Select(self.counts(row), checked, zero)

    def total(self, element: Callable[[Sequence[Expr]], Expr], name: str) -> te.Tensor:
        """A scalar: the sum over all rows."""
        over = self._rows()
        return te.compute((), lambda: _sum(element(over), over), name=name)

    def total_weight(self) -> te.Tensor:
        """A scalar: the sum of the weights of the labels that count."""
        return self.total(
            lambda row: self.counted(row, self.weight_of(self.label(row))), "total_weight"
        )

    def _rows(self) -> list[IterVar]:
        return [
            te.reduce_axis((0, extent), name=f"n{a}") for a, extent in enumerate(self.indices.shape)
        ]


def labelled(
    scores: te.Tensor,
    labels: te.Tensor,
    weights: tuple[te.Tensor, ...],
    axis: int,
    ignore_index: int,
) -> Labels:
    """The labels of scores whose classes lie on an axis."""
    classes = int(scores.shape[axis])
    return Labels(labels, weights, axis, classes, ignore_index, str(scores.dtype))


def _sum(value: Expr, over: list[IterVar]) -> Expr:
    return te.sum(value, axis=over) if over else value
