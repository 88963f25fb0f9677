"""Compute elementwise values where they are used instead of storing them."""

from __future__ import annotations

import contextlib

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir.schedule import SBlockRV, ScheduleError

_COSTLY = frozenset(
    ["exp", "exp2", "log", "log2", "tanh", "sigmoid", "erf", "pow", "sin", "cos", "tan"]
)


def inline_elementwise(sch: s_tir.Schedule) -> None:
    """Compute each elementwise value inside its readers, or else inside its producer.

    A value that costs a transcendental function is not computed twice for that.
    """
    for block in leaf_blocks(sch):
        if not _is_dear_to_repeat(sch, block):
            with contextlib.suppress(ScheduleError):
                sch.compute_inline(block)
    for block in reversed(leaf_blocks(sch)):
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
    repeated = len(readers) > 1 or any(is_reduction(sch, reader) for reader in readers)
    return repeated and _has_costly_call(sch.get(block).body)


def _has_costly_call(stmt: tirx.Stmt) -> bool:
    found: list[str] = []

    def visit(call: ir.Call) -> None:
        if isinstance(call.op, ir.Op) and _short_name(call.op) in _COSTLY:
            found.append(call.op.name)

    tvm_ffi.structural_walk(stmt, (ir.Call, visit))
    return bool(found)


def _short_name(op: ir.Op) -> str:
    return str(op.name).rpartition(".")[2]
