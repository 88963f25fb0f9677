"""Remove lets that only rename a variable or a constant."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import ir, tirx


@tirx.transform.prim_func_pass(opt_level=0, name="InlineTrivialLets")
class InlineTrivialLets:
    """Replace the variable of a let by its value where that is a variable or a constant.

    .. code-block:: python

        shared = T.bind(T.Cast("uint32", i * 64 + j))
        y[i, j] = T.Select(T.let(word, shared, word ^ word >> 16) < 7, 0, x[i, j])

    becomes

    .. code-block:: python

        shared = T.bind(T.Cast("uint32", i * 64 + j))
        y[i, j] = T.Select(shared ^ shared >> 16 < 7, 0, x[i, j])

    Runs after ``tirx.CommonSubexprElim``, which makes such lets, and before ``tirx.LowerIntrin``.
    That pass tells the analyser the value of every variable, and lets it simplify conditions; the
    simplifier then drops a let with a plain value and tells the value once more, in its own form,
    and the analyser refuses two values for one variable.
    """

    def transform_function(
        self, func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        return func.with_body(tvm_ffi.structural_map(func.body, (tirx.Let, _inlined)))


def _inlined(let: tirx.Let) -> ir.Expr:
    if not isinstance(let.value, (ir.Var, tirx.IntImm, tirx.FloatImm)):
        return let
    return tvm_ffi.structural_map(
        let.body, (ir.Var, lambda var: let.value if var.same_as(let.var) else var)
    )
