"""Compute elementwise values where they are used instead of storing them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Sequence

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir.schedule import SBlockRV, ScheduleError

from tvm_xengine.relax_ir.kernel_attributes import KEPT_ATTR

_COSTLY = frozenset(
    ["exp", "exp2", "log", "log2", "log1p", "tanh", "sigmoid", "erf", "pow", "sin", "cos", "tan"]
)
_MOST_REPEATED = 500
"""Expressions."""


def inline_elementwise(sch: s_tir.Schedule) -> None:
    """Compute each elementwise value inside its readers, or else inside its producer.

    A value that costs a transcendental function is not computed twice for that, nor for each of the
    places where it is repeated. Long ones are not
    repeated either: a chain of values that each read the one before twice would become as long as
    a power of two. What a kernel says is kept is stored, too.
    """
    for block in leaf_blocks(sch):
        if (
            not _is_dear_to_repeat(sch, block)
            and KEPT_ATTR not in sch.get(block).annotations
            and not _is_long_to_repeat(sch, block, sch.get_consumers(block))
        ):
            with contextlib.suppress(ScheduleError):
                sch.compute_inline(block)
    for block in reversed(leaf_blocks(sch)):
        if not any(
            _is_long_to_repeat(sch, producer, [block]) or _is_repeated(sch, producer, block)
            for producer in sch.get_producers(block)
        ):
            with contextlib.suppress(ScheduleError):
                sch.reverse_compute_inline(block)


def leaf_blocks(sch: s_tir.Schedule) -> list[SBlockRV]:
    """The blocks below the root block, in the order of the program."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def is_reduction(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether a block sums, or takes the maximum, ... over an axis."""
    return any(axis.iter_type == tirx.IterVar.CommReduce for axis in sch.get(block).iter_vars)


def _is_dear_to_repeat(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    readers = sch.get_consumers(block)
    repeated = len(readers) > 1 or any(
        is_reduction(sch, reader) or _is_repeated(sch, block, reader) for reader in readers
    )
    return repeated and _has_costly_call(sch.get(block).body)


def _is_repeated(sch: s_tir.Schedule, block: SBlockRV, reader: SBlockRV) -> bool:
    """Whether a reader has several places for each element."""
    return _positions(sch, reader) >= 2 * _positions(sch, block)


def _positions(sch: s_tir.Schedule, block: SBlockRV) -> int:
    return math.prod(int(axis.dom.extent) for axis in sch.get(block).iter_vars)


def _is_long_to_repeat(sch: s_tir.Schedule, block: SBlockRV, readers: Sequence[SBlockRV]) -> bool:
    """Whether `readers` would together hold more than a few dozen lines of copies of a block."""
    stored = {region.source for region in sch.get(block).writes}
    copies = sum(_loads(sch.get(reader).body, stored) for reader in readers)
    return copies > 1 and copies * _length(sch.get(block).body) > _MOST_REPEATED


def _loads(stmt: tirx.Stmt, buffers: Collection[ir.Var]) -> int:
    found: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(stmt, (ir.TensorLoad, found.append))
    return sum(load.source in buffers for load in found)


def _length(stmt: tirx.Stmt) -> int:
    """Number of expressions in a statement."""
    found = 0

    def visit(_: ir.Expr) -> None:
        nonlocal found
        found += 1

    tvm_ffi.structural_walk(stmt, (ir.Expr, visit))
    return found


def _has_costly_call(stmt: tirx.Stmt) -> bool:
    found: list[str] = []

    def visit(call: ir.Call) -> None:
        name = _short_name(call.op) if isinstance(call.op, ir.Op) else ""
        is_library = name == "call_pure_extern" and "float" in str(call.ty.dtype)
        if name in _COSTLY or is_library:
            found.append(name)

    tvm_ffi.structural_walk(stmt, (ir.Call, visit))
    return bool(found)


def _short_name(op: ir.Op) -> str:
    return str(op.name).rpartition(".")[2]
