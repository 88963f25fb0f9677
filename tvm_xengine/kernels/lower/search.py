"""Searches in expressions."""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi
from tvm import ir, tirx


def any_part(root: tirx.Stmt | ir.Expr, is_one: Callable[[ir.Expr], bool]) -> bool:
    """Whether an expression in `root`, or `root` itself, is one of those."""
    found: list[bool] = []

    def visit(part: ir.Expr) -> None:
        if not found and is_one(part):
            found.append(True)

    tvm_ffi.structural_walk(root, (ir.Expr, visit))
    return bool(found)
