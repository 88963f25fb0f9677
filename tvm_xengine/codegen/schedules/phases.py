"""Take the zeros out of contractions that read only every s-th position.

The data gradient of a convolution with stride s sums terms that are zero unless
``(i + p - k) % s == 0``. For positions i with one remainder only the k with one remainder count,
so the kernel is s smaller contractions (per strided axis) without such a condition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_xengine.codegen.schedules.accumulation import mentions, substitute
from tvm_xengine.codegen.schedules.blocks import Axis
from tvm_xengine.codegen.schedules.contraction import Contraction


def split_phases(contraction: Contraction) -> tuple[Contraction, ...]:
    """Return contractions for all remainders, whose outputs together are that of the given one.

    One whose depth has an axis of extent 0 sums nothing.
    """
    for condition in _remainder_conditions(contraction.right):
        phases = _split(contraction, condition)
        if phases is not None:
            return tuple(smaller for phase in phases for smaller in split_phases(phase))
    return (contraction,)


def _remainder_conditions(expr: ir.Expr) -> list[tirx.EQ]:
    found: list[tirx.EQ] = []

    def visit(equal: tirx.EQ) -> None:
        if isinstance(equal.a, tirx.FloorMod) and isinstance(equal.a.b, tirx.IntImm):
            found.append(equal)

    tvm_ffi.structural_walk(expr, (tirx.EQ, visit))
    return found


def _split(contraction: Contraction, condition: tirx.EQ) -> list[Contraction] | None:
    columns = [axis for axis in contraction.columns if mentions(condition, axis.var)]
    depth = [axis for axis in contraction.depth if mentions(condition, axis.var)]
    if len(columns) != 1 or len(depth) != 1:
        return None
    stride = int(condition.a.b)
    phases = []
    for remainder in range(stride):
        matching = _matching_remainder(condition, columns[0], depth[0], remainder, stride)
        if matching is None:
            return None
        phases.append(_phase(contraction, (columns[0], remainder), (depth[0], matching), stride))
    return [phase for phase in phases if phase is not None]


def _matching_remainder(
    condition: ir.Expr, column: Axis, depth: Axis, remainder: int, stride: int
) -> int | None:
    """The remainder of the depth axis with which a condition holds; None when unclear."""
    matching = []
    for candidate in range(stride):
        at = {
            column.var: column.var * stride + remainder,
            depth.var: depth.var * stride + candidate,
        }
        value = sym.Analyzer().simplify(substitute(condition, at))
        if not isinstance(value, tirx.IntImm):
            return None
        if int(value):
            matching.append(candidate)
    return matching[0] if len(matching) == 1 else None


def _phase(
    contraction: Contraction, column: tuple[Axis, int], depth: tuple[Axis, int], stride: int
) -> Contraction | None:
    """The part of a contraction with given remainders of two axes; None when it has no columns."""
    at: dict[ir.Var, ir.Expr] = {}
    smaller: dict[ir.Var, Axis] = {}
    for axis, remainder in (column, depth):
        extent = max(-(-(axis.extent - remainder) // stride), 0)
        smaller[axis.var] = Axis(ir.Var(axis.var.name, axis.var.ty), extent)
        at[axis.var] = smaller[axis.var].var * stride + remainder
    if not smaller[column[0].var].extent:
        return None

    def shrunk(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(smaller.get(axis.var, axis) for axis in axes)

    part = dataclasses.replace(
        contraction,
        columns=shrunk(contraction.columns),
        depth=shrunk(contraction.depth),
        index=tuple(substitute(index, at) for index in contraction.index),
        finish=substitute(contraction.finish, at),
    )
    analyzer = sym.Analyzer()
    for axis in (*part.batch, *part.rows, *part.columns, *part.depth):
        analyzer.bind(axis.var, ir.Range(0, max(axis.extent, 1)))
    return dataclasses.replace(
        part,
        left=analyzer.simplify(substitute(contraction.left, at)),
        right=analyzer.simplify(substitute(contraction.right, at)),
    )
