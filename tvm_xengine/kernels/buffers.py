"""Which parameter or local array of a lowered kernel the bytes of a buffer are."""

from __future__ import annotations

import tvm_ffi
from tvm import ir, tirx


def base_of(data: ir.Expr) -> ir.Var | None:
    """The buffer inside a pointer expression made of casts and byte offsets."""
    while isinstance(data, ir.Call):
        if data.op.name == "tirx.buffer_data":
            return data.args[0]
        if data.op.name not in ("tirx.reinterpret", "tirx.handle_add_byte_offset"):
            return None
        data = data.args[0]
    return None


def buffer_roots(func: tirx.PrimFunc) -> dict[ir.Var, ir.Var]:
    """The parameter or local array whose bytes each buffer shows."""
    roots: dict[ir.Var, ir.Var] = {param: param for param in func.params}
    tvm_ffi.structural_walk(
        func.body, (tirx.AllocBuffer, lambda stmt: roots.update({stmt.buffer: stmt.buffer}))
    )

    def declare(stmt: tirx.DeclBuffer) -> None:
        base = base_of(stmt.data)
        if base is not None and base in roots:
            roots[stmt.buffer] = roots[base]

    tvm_ffi.structural_walk(func.body, (tirx.DeclBuffer, declare))
    return roots
