"""Keep the values of nested lets in memory of one element each."""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.lower.search import any_part

_Binding = tuple[ir.Var, ir.Expr]
_Choose = Callable[[ir.Expr, ir.Expr, ir.Expr], ir.Expr]
_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_FREE_CALLS = frozenset(["tirx.reinterpret"])


@tirx.transform.prim_func_pass(opt_level=0, name="StoreNestedLets")
class StoreNestedLets:
    """Store the values of lets where these are nested.

    .. code-block:: python

        y[i] = T.let(b, 2.0 * T.let(a, x[i], a * a), b * b)

    becomes

    .. code-block:: python

        a = T.alloc_buffer((1,), "float32", scope="local")
        a[0] = x[i]
        b = T.alloc_buffer((1,), "float32", scope="local")
        b[0] = 2.0 * (a[0] * a[0])
        y[i] = b[0] * b[0]

    TVM's code generator tells an analyser the value of every variable, and that puts values into
    values wherever their variables stand: time and memory that grow exponentially with the depth.
    It does not look into memory, and LLVM makes registers of it. A value from below a condition
    that loads, divides integers or calls a function is zero where the condition does not hold.

    Functions without lets in the values of variables stay as they are. Runs after ``LowerTVMBuiltin``,
    which would allocate the memory at run time, and before ``LowerIntrin``.
    """

    def transform_function(
        self, func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        return func.with_body(_stored(func.body)) if _is_nested(func.body) else func


def _is_nested(body: tirx.Stmt) -> bool:
    """Whether a variable's value holds a let or a variable whose value does."""
    with_let: set[ir.Var] = set()
    nested: list[ir.Var] = []

    def visit(node: tirx.Let | tirx.Bind) -> None:
        holds_let = _holds_let(node.value)
        if holds_let:
            with_let.add(node.var)
        inner = holds_let and isinstance(node, tirx.Let)
        if inner or any_part(
            node.value, lambda part: isinstance(part, ir.Var) and part in with_let
        ):
            nested.append(node.var)

    tvm_ffi.structural_walk(body, ((tirx.Let, tirx.Bind), visit), order="pre")
    return bool(nested)


def _stored(body: tirx.Stmt) -> tirx.Stmt:
    bound: dict[ir.Var, ir.Expr] = {}

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        hoist = _Hoist()
        value = hoist.out_of(node.value)
        indices = [hoist.out_of(index) for index in node.indices]
        return hoist.before(tirx.BufferStore(node.buffer, value, indices, node.span))

    def bind(node: tirx.Bind) -> tirx.Stmt:
        if not _holds_let(node.value):
            return node
        hoist = _Hoist()
        bound[node.var] = hoist.out_of(tirx.Let(node.var, node.value, node.var))
        return hoist.before(None)

    def evaluate(node: tirx.Evaluate) -> tirx.Stmt:
        hoist = _Hoist()
        return hoist.before(tirx.Evaluate(hoist.out_of(node.value), node.span))

    def branch(node: tirx.IfThenElse) -> tirx.Stmt:
        hoist = _Hoist()
        condition = hoist.out_of(node.condition)
        return hoist.before(tirx.IfThenElse(condition, node.then_case, node.else_case, node.span))

    changed = tvm_ffi.structural_map(
        body,
        [
            (tirx.BufferStore, store),
            (tirx.Bind, bind),
            (tirx.Evaluate, evaluate),
            (tirx.IfThenElse, branch),
        ],
    )
    return tvm_ffi.structural_map(changed, (ir.Var, lambda var: bound.get(var, var)))


class _Hoist:
    """Moves the lets of a statement's expressions in front of it.

    Each gets memory of its own, because copies of code, as unrolling makes them, may bind one
    variable to several values.
    """

    def __init__(self) -> None:
        self._bindings: list[_Binding] = []
        self._places: dict[ir.Var, ir.Expr] = {}

    def before(self, stmt: tirx.Stmt | None) -> tirx.Stmt:
        """`stmt` behind the stores of what was taken out of its expressions."""
        stmts: list[tirx.Stmt] = []
        for buffer, value in self._bindings:
            stmts += [tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, value, [0])]
        stmts += [] if stmt is None else [stmt]
        return stmts[0] if len(stmts) == 1 else tirx.SeqStmt(stmts)

    def out_of(self, expr: ir.Expr) -> ir.Expr:
        """`expr` without its lets."""
        return tvm_ffi.structural_map(
            expr,
            [
                (tirx.Let, self._let),
                (ir.Var, lambda var: self._places.get(var, var)),
                (tirx.Select, self._select),
                (ir.Call, self._call),
                ((tirx.And, tirx.Or), self._logical),
            ],
            order="pre",
        )

    def _let(self, let: tirx.Let) -> ir.Expr:
        value = self.out_of(let.value)
        outer = self._places
        self._places = {**outer, let.var: self._place(let.var, value)}
        body = self.out_of(let.body)
        self._places = outer
        return body

    def _place(self, var: ir.Var, value: ir.Expr) -> ir.Expr:
        dtype = str(var.ty.dtype)
        if dtype.startswith(("bool", "handle")):
            return value
        buffer = tirx.decl_buffer((1,), dtype, name=var.name, scope="local")
        self._bindings.append((buffer, value))
        return buffer[0]

    def _select(self, select: tirx.Select) -> ir.Expr:
        if not _holds_let(select):
            return select
        parts = (select.condition, select.true_value, select.false_value)
        return self._choice(tirx.Select, *parts)

    def _call(self, call: ir.Call) -> ir.Expr:
        if not isinstance(call.op, ir.Op) or call.op.name != "prim.if_then_else":
            return call
        return self._choice(tirx.if_then_else, *call.args) if _holds_let(call) else call

    def _logical(self, node: tirx.And | tirx.Or) -> ir.Expr:
        if not _holds_let(node):
            return node
        a = self.out_of(node.a)
        needs_b = a if isinstance(node, tirx.And) else tirx.Not(a)

        def guarded(value: ir.Expr, zero: ir.Expr) -> ir.Expr:
            return value if _lanes(needs_b) > 1 else tirx.if_then_else(needs_b, value, zero)

        return type(node)(a, self._where(node.b, guarded))

    def _choice(
        self, choose: _Choose, condition: ir.Expr, true: ir.Expr, false: ir.Expr
    ) -> ir.Expr:
        holds = self.out_of(condition)

        def guarded(value: ir.Expr, one: ir.Expr, other: ir.Expr) -> ir.Expr:
            # Conditions of vectors are those of `Select`, which computes both sides anyway.
            return value if _lanes(holds) > _lanes(value) else choose(holds, one, other)

        return choose(
            holds,
            self._where(true, lambda value, zero: guarded(value, value, zero)),
            self._where(false, lambda value, zero: guarded(value, zero, value)),
        )

    def _where(self, expr: ir.Expr, guard: Callable[[ir.Expr, ir.Expr], ir.Expr]) -> ir.Expr:
        """`expr`, which a condition decides about, without its lets."""
        first = len(self._bindings)
        result = self.out_of(expr)
        for number in range(first, len(self._bindings)):
            buffer, value = self._bindings[number]
            if not self._is_safe(value):
                zero = tirx.const(0, str(value.ty.dtype))
                self._bindings[number] = (buffer, guard(value, zero))
        return result

    def _is_safe(self, value: ir.Expr) -> bool:
        """Whether a value may be computed where it is not needed, at little cost."""
        mine = {buffer for buffer, _ in self._bindings}

        def is_unsafe(part: ir.Expr) -> bool:
            divides = isinstance(part, _DIVISIONS) and "int" in str(part.ty.dtype)
            loads = isinstance(part, ir.TensorLoad) and part.source not in mine
            return divides or loads or _calls_function(part)

        return not any_part(value, is_unsafe)


def _lanes(expr: ir.Expr) -> int:
    return int(expr.ty.dtype.lanes)


def _holds_let(expr: ir.Expr) -> bool:
    return any_part(expr, lambda part: isinstance(part, tirx.Let))


def _calls_function(part: ir.Expr) -> bool:
    if not isinstance(part, ir.Call):
        return False
    return not (isinstance(part.op, ir.Op) and part.op.name in _FREE_CALLS)
