"""Branch around reads that may lie outside of their buffer, and around no others."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import ir, sym, tirx

_BRANCH = "prim.if_then_else"


@tirx.transform.prim_func_pass(opt_level=0, name="BranchAroundReads")
class BranchAroundReads:
    """Make selects of branches that read inside of their buffers anyway, and branches of other selects.

    .. code-block:: python

        y[i] = T.if_then_else(x[i] > 0, x[i], 0)
        z[i] = T.Select(i < 9, x[i], 0)  # x has 9 elements, and i goes to 10

    becomes

    .. code-block:: python

        y[i] = T.Select(x[i] > 0, x[i], 0)
        z[i] = T.if_then_else(i < 9, x[i], 0)

    It stands in the place of ``s_tir.RewriteUnsafeSelect``, which makes branches of all that read. Then LLVM
    must prove again that a read is safe, or use the masked loads of AVX-512. With AVX2 the
    gradients of a ReLU and of a max pooling took 8 to 15 times as long: a branch for each
    element that depends on its value. What computes more than a few operations stays a branch; so does
    what reads nothing that its condition does not read, which LLVM finds out and writes better. Where
    the positions of maxima are bound to names it does not.
    """

    def transform_function(
        self, func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        return func.with_body(_rewritten(func.body, _ranges(func.body)))


def _ranges(body: tirx.Stmt) -> sym.Analyzer:
    analyzer = sym.Analyzer()

    def bind(loop: tirx.For) -> None:
        analyzer.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))

    tvm_ffi.structural_walk(body, (tirx.For, bind))
    return analyzer


def _rewritten(
    root: tirx.Stmt | ir.Expr, analyzer: sym.Analyzer, *, is_bound: bool = False
) -> tirx.Stmt | ir.Expr:
    def is_free(condition: ir.Expr, values: tuple[ir.Expr, ir.Expr]) -> bool:
        inside = all(_reads_inside(value, analyzer) for value in values)
        return inside and (is_bound or any(_reads_more(value, condition) for value in values))

    def bound(bind: tirx.Bind) -> tirx.Stmt:
        return tirx.Bind(bind.var, _rewritten(bind.value, analyzer, is_bound=True), bind.span)

    def guarded(select: tirx.Select) -> ir.Expr:
        values = (select.true_value, select.false_value)
        is_scalar = int(select.condition.ty.dtype.lanes) == 1
        if not is_scalar or not any(map(_loads, values)) or is_free(select.condition, values):
            return select
        return tirx.if_then_else(select.condition, *values, select.span)

    def chosen(call: ir.Call) -> ir.Expr:
        if not _is_branch(call):
            return call
        condition, true, false = call.args
        with analyzer.constraint_scope(condition):
            values = (_rewritten(true, analyzer, is_bound=is_bound), false)
        if all(map(_is_cheap, values)) and is_free(condition, values):
            return tirx.Select(condition, *values, call.span)
        return tirx.if_then_else(condition, *values, call.span)

    return tvm_ffi.structural_map(
        root, [(tirx.Select, guarded), (ir.Call, chosen), (tirx.Bind, bound)]
    )


def _is_branch(call: ir.Call) -> bool:
    return isinstance(call.op, ir.Op) and call.op.name == _BRANCH


def _is_cheap(value: ir.Expr) -> bool:
    """Whether a value may be computed in vain: it calls nothing, and divides no integer by a variable."""
    dear: list[ir.Expr] = []

    def divide(part: ir.Expr) -> None:
        if not isinstance(part.b, (tirx.IntImm, tirx.FloatImm)):
            dear.append(part)

    divisions = [(kind, divide) for kind in (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)]

    def call(part: ir.Call) -> None:
        if not _is_branch(part):  # which computes in vain no more than before
            dear.append(part)

    tvm_ffi.structural_walk(value, [(ir.Call, call), (tirx.Let, dear.append), *divisions])
    return not dear


def _loads(value: ir.Expr) -> list[ir.TensorLoad]:
    """What a value reads outside of its own branches, which are guarded there."""
    every: list[ir.TensorLoad] = []
    guarded: list[ir.TensorLoad] = []

    def visit(call: ir.Call) -> None:
        if _is_branch(call):
            for branch in call.args[1:]:
                tvm_ffi.structural_walk(branch, (ir.TensorLoad, guarded.append))

    tvm_ffi.structural_walk(value, (ir.Call, visit))
    tvm_ffi.structural_walk(value, (ir.TensorLoad, every.append))
    return [load for load in every if not any(load.same_as(one) for one in guarded)]


def _reads_more(value: ir.Expr, condition: ir.Expr) -> bool:
    known = _loads(condition)
    return any(
        not any(tvm_ffi.structural_equal(load, one) for one in known) for load in _loads(value)
    )


def _reads_inside(value: ir.Expr, analyzer: sym.Analyzer) -> bool:
    return all(_is_inside(load, analyzer) for load in _loads(value))


def _is_inside(load: ir.TensorLoad, analyzer: sym.Analyzer) -> bool:
    for index, extent in zip(load.indices, load.source.ty.shape, strict=True):
        first, last = index, index
        if isinstance(index, tirx.Ramp):
            first, last = index.base, index.base + index.stride * (index.lanes - 1)
        if not isinstance(extent, tirx.IntImm):
            return False
        low, high = analyzer.const_int_bound(first), analyzer.const_int_bound(last)
        if int(low.min_value) < 0 or int(high.max_value) >= int(extent):
            return False
    return True
