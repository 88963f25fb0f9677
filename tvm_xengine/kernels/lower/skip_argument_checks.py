"""Remove the checks of a kernel's arguments, which the plan has typed."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx


@tirx.transform.prim_func_pass(opt_level=0, name="SkipArgumentChecks")
class SkipArgumentChecks:
    """Remove what ``MakePackedAPI`` asserts about number, type, shape and place of the arguments.

    Kernels are called with the tensors of a plan only, whose types are those of the kernel. The
    checks are most of a small kernel: without them machine code takes half of the time to make and
    a third of the room. What a kernel itself asserts, such as that a library's call returned 0, is a
    ``RuntimeError`` and stays.
    """

    def transform_function(
        self, func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        return func.with_body(tvm_ffi.structural_map(func.body, (tirx.AssertStmt, _without_check)))


def _without_check(check: tirx.AssertStmt) -> tirx.Stmt:
    if check.error_kind.value in ("TypeError", "ValueError"):
        return tirx.Evaluate(0)
    return check
