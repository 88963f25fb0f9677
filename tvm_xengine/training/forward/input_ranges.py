"""The ranges of integer inputs that index tables, and of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import relax

from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.scheduling.value_range import ValueRange

if TYPE_CHECKING:
    from tvm_xengine.training.losses import Loss

_SAME_VALUES = frozenset(
    f"relax.{name}"
    for name in (
        "astype",
        "broadcast_to",
        "expand_dims",
        "flatten",
        "permute_dims",
        "reshape",
        "squeeze",
    )
)
"""Operators whose result holds the values of their first operand."""


def index_ranges(source: ForwardOps, inputs: Sequence[relax.Var]) -> dict[str, ValueRange]:
    """For each input that a table is indexed with, the rows of the smallest such table."""
    origin = {var: var for var in inputs if str(var.ty.dtype).startswith(("int", "uint"))}
    rows: dict[relax.Var, int] = {}
    for op in source.ops:
        if op.op in _SAME_VALUES and (var := origin.get(op.operands[0])) is not None:
            if "int" in str(op.results[0].ty.dtype):
                origin[op.results[0]] = var
        elif op.op == "relax.take" and (var := origin.get(op.operands[1])) is not None:
            extent = _indexed_extent(op.call)
            rows[var] = min(extent, rows.get(var, extent))
    return {var.name: ValueRange(0, count - 1) for var, count in rows.items()}


def value_ranges(
    source: ForwardOps, inputs: Sequence[relax.Var], loss: Loss, labels: str | None
) -> dict[str, ValueRange]:
    """Which values the inputs and labels of a step may have."""
    ranges = index_ranges(source, inputs)
    allowed = loss.labels_range(source.outputs[0].ty)
    return ranges if labels is None or allowed is None else {**ranges, labels: allowed}


def _indexed_extent(take: relax.Call) -> int:
    shape = static_shape(take.args[0].ty)
    axis = take.attrs.axis
    return shape[0 if axis is None else int(axis)]
