"""Hide conditions from TVM's simplification of flat indices, where it is wrong."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.lower.search import any_part


@tvm.transform.module_pass(opt_level=0, name="HideConditions")
class HideConditions:
    """Negate conditions twice that ``FlattenBuffer`` would draw a wrong conclusion from.

    It looks for simpler flat indices under the condition that holds there. Where that is about the
    remainder of a loop variable, and the index divides it after an addition, the result was wrong in
    TVM 0.27: with ``outer % 9 < 8``, ``outer // 9 * 9 + (outer % 9 + 1) // 3 * 3`` became
    ``(outer + 1) // 3 * 3 - 9``, and with ``(1 - i) % 2 == 0``, ``(1 - i) // 2`` became ``i // -2``.
    What is negated twice it does not understand, and later passes take the negations out again. In
    selects and conjunctions it does, so these become branches. Runs right before ``FlattenBuffer``.
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = mod.clone()
        for symbol, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc) and any_part(func.body, _is_simplified_wrongly):
                hidden = [
                    (ir.Call, _hidden),
                    (tirx.IfThenElse, _hidden_branch),
                    *((kind, _as_branch) for kind in (tirx.Select, tirx.And, tirx.Or)),
                ]
                body = tvm_ffi.structural_map(func.body, hidden)
                mod[symbol] = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
        return mod


def _hidden(call: ir.Call) -> ir.Expr:
    if not isinstance(call.op, ir.Op) or call.op.name != "prim.if_then_else":
        return call
    condition, true, false = call.args
    if not (_takes_remainder(condition) and any_part(call, _is_simplified_wrongly)):
        return call
    return tirx.if_then_else(tirx.Not(tirx.Not(condition)), true, false, call.span)


def _hidden_branch(node: tirx.IfThenElse) -> tirx.Stmt:
    if not (_takes_remainder(node.condition) and any_part(node, _is_simplified_wrongly)):
        return node
    condition = tirx.Not(tirx.Not(node.condition))
    return tirx.IfThenElse(condition, node.then_case, node.else_case, node.span)


def _as_branch(node: tirx.Select | tirx.And | tirx.Or) -> ir.Expr:
    """A branch in place of a select, a conjunction or a disjunction, in which negations hide nothing."""
    match node:
        case tirx.Select():
            condition, values = node.condition, (node.true_value, node.false_value)
        case tirx.And():
            condition, values = node.a, (node.b, tirx.const(False, "bool"))
        case _:
            condition, values = node.a, (tirx.const(True, "bool"), node.b)
    if not (
        _takes_remainder(condition) and any(any_part(v, _is_simplified_wrongly) for v in values)
    ):
        return node
    return tirx.if_then_else(tirx.Not(tirx.Not(condition)), *values, node.span)


def _takes_remainder(expr: ir.Expr) -> bool:
    return any_part(expr, lambda part: isinstance(part, tirx.FloorMod))


def _is_simplified_wrongly(part: ir.Expr) -> bool:
    """Whether `part` divides something with a remainder in it, or a number less something."""
    if not isinstance(part, (tirx.FloorDiv, tirx.FloorMod)):
        return False
    is_less = isinstance(part.a, tirx.Sub) and isinstance(part.a.a, tirx.IntImm)
    return is_less or _takes_remainder(part.a)
