"""Variables as keys of mappings."""

from __future__ import annotations

from tvm import ir


def identity(var: ir.Expr) -> int:
    """What tells a variable from others while its function lives; TVM's ``==`` takes microseconds."""
    return hash(var)
