"""Read off a lowered kernel how often each of its stores runs, and what it touches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tvm import ir, tirx

_SAMPLED_STORES = 16
"""Of a longer run of stores (an unrolled loop) so many stand for all of them."""

IndexFunction = Callable[[Sequence[int]], int]


@dataclass(frozen=True)
class Loop:
    """A loop around a statement; `extent` is its largest number of iterations."""

    extent: int
    is_parallel: bool


@dataclass(frozen=True)
class Access:
    """A load or store inside loops.

    Attributes
    ----------
    strides_bytes
        For each loop, outermost first, how far the address moves in one iteration.
    lanes
        Elements that are touched at once, and `lane_stride` elements lie between two of them.
    """

    element_bytes: int
    lanes: int
    lane_stride: int
    strides_bytes: tuple[int, ...]

    @property
    def bytes_at_once(self) -> int:
        """Bytes that one execution touches."""
        return self.element_bytes * (self.lanes if self.lane_stride else 1)


@dataclass(frozen=True)
class Statement:
    """A store with everything that is computed for it.

    Attributes
    ----------
    executions
        How often it runs in one call of the kernel, once for a whole vector.
    ops
        Number of operations of each class in one execution.
    """

    loops: tuple[Loop, ...]
    executions: float
    store: Access
    loads: tuple[Access, ...]
    ops: Counter[str]


@dataclass(frozen=True)
class _Scope:
    """Where the walk is: the loops around it, and what the names in them mean."""

    loops: tuple[Loop, ...] = ()
    slots: dict[ir.Var, int] = field(default_factory=dict)
    bound: dict[ir.Var, ir.Expr] = field(default_factory=dict)
    weight: float = 1.0

    def inside(self, var: ir.Var, extent: ir.Expr, is_parallel: bool) -> _Scope:
        """The scope of the body of a loop, or of the threads of a launch."""
        loop = Loop(max(1, _largest(extent)), is_parallel)
        slots = {**self.slots, var: len(self.loops)}
        return _Scope((*self.loops, loop), slots, dict(self.bound), self.weight)


def statements_of(kernel: tirx.PrimFunc) -> list[Statement]:
    """The stores of a lowered kernel, in the order of the program.

    Long unrolled runs are represented by some of their stores, whose `executions` count for all.
    Loops whose extent depends on others count with their largest extent, and both branches of a
    condition count in full.
    """
    return list(_walk(kernel.body, _Scope()))


def _walk(stmt: tirx.Stmt, scope: _Scope) -> Iterator[Statement]:
    match stmt:
        case tirx.SeqStmt():
            yield from _walk_sequence(list(stmt.seq), scope)
        case tirx.For():
            is_parallel = int(stmt.kind) == int(tirx.ForKind.PARALLEL)
            yield from _walk(stmt.body, scope.inside(stmt.loop_var, stmt.extent, is_parallel))
        case tirx.IfThenElse():
            yield from _walk(stmt.then_case, scope)
            if stmt.else_case is not None:
                yield from _walk(stmt.else_case, scope)
        case tirx.AttrStmt() if stmt.attr_key == "thread_extent":
            yield from _walk(stmt.body, scope.inside(stmt.node.var, stmt.value, is_parallel=True))
        case tirx.AttrStmt() | tirx.While():
            yield from _walk(stmt.body, scope)
        case tirx.Bind():
            scope.bound[stmt.var] = stmt.value
        case tirx.BufferStore():
            yield _statement(stmt, scope)


def _walk_sequence(children: Sequence[tirx.Stmt], scope: _Scope) -> Iterator[Statement]:
    stores = [child for child in children if isinstance(child, tirx.BufferStore)]
    step = max(1, math.ceil(len(stores) / _SAMPLED_STORES))
    sampled = stores[::step]
    weight = scope.weight * (len(stores) / len(sampled) if sampled else 1.0)
    outside = _Scope(scope.loops, scope.slots, scope.bound, weight)
    place = 0
    for child in children:
        if isinstance(child, tirx.BufferStore):
            if place % step == 0:
                yield from _walk(child, outside)
            place += 1
        else:
            yield from _walk(child, scope)


def _statement(store: tirx.BufferStore, scope: _Scope) -> Statement:
    ops: Counter[str] = Counter()
    loads: list[Access] = []
    _visit_value(store.value, scope, ops, loads)
    executions = scope.weight * math.prod(loop.extent for loop in scope.loops)
    target = _access(store.buffer, store.indices, scope, ops)
    return Statement(scope.loops, executions, target, tuple(loads), ops)


_OP_CLASSES: dict[type, str] = {
    tirx.Add: "add",
    tirx.Sub: "add",
    tirx.Mul: "multiply",
    tirx.Div: "divide",
    tirx.FloorDiv: "integer_divide",
    tirx.FloorMod: "integer_divide",
    tirx.Mod: "integer_divide",
    tirx.Min: "compare",
    tirx.Max: "compare",
    tirx.EQ: "compare",
    tirx.NE: "compare",
    tirx.LT: "compare",
    tirx.LE: "compare",
    tirx.GT: "compare",
    tirx.GE: "compare",
    tirx.And: "compare",
    tirx.Or: "compare",
}

_CHEAP_CALLS = {
    "tirx.fma": "multiply",
    "tirx.fabs": "compare",
    "tirx.shift_right": "add",
    "tirx.shift_left": "add",
    "tirx.bitwise_and": "add",
    "tirx.bitwise_or": "add",
    "tirx.bitwise_xor": "add",
    "tirx.bitwise_not": "add",
    "tirx.reinterpret": "cast",
    "tirx.if_then_else": "branch",
    "tirx.likely": "",
}

OP_CLASSES = (
    *("add", "multiply", "divide", "integer_divide", "compare", "branch", "select", "cast"),
    *("gather", "call"),
)
"""Classes that `Statement.ops` counts: ``gather`` is an index that is loaded, ``call`` every
intrinsic that is not cheap."""


def _visit_value(expr: ir.Expr, scope: _Scope, ops: Counter[str], loads: list[Access]) -> None:
    kind = type(expr)
    if kind in _OP_CLASSES:
        ops[_OP_CLASSES[kind]] += 1
        children = [expr.a, expr.b]
    elif kind is ir.TensorLoad:
        loads.append(_access(expr.source, expr.indices, scope, ops))
        return
    elif kind is ir.Call:
        name = str(expr.op.name) if isinstance(expr.op, ir.Op) else "call"
        if op_class := _CHEAP_CALLS.get(name, "call"):
            ops[op_class] += 1
        children = list(expr.args)
    elif kind is tirx.Select:
        ops["select"] += 1
        children = [expr.condition, expr.true_value, expr.false_value]
    elif kind is tirx.Cast:
        ops["cast"] += 1
        children = [expr.value]
    elif kind is tirx.Broadcast:
        children = [expr.value]
    elif kind is tirx.Not:
        children = [expr.a]
    elif kind is ir.Var and expr in scope.bound:
        children = [scope.bound[expr]]
    else:
        return
    for child in children:
        _visit_value(child, scope, ops, loads)


def _access(buffer: ir.Var, indices: Sequence[ir.Expr], scope: _Scope, ops: Counter[str]) -> Access:
    element_bytes, own_lanes = _element(str(buffer.ty.dtype.dtype))
    index, lanes, lane_stride = indices[-1], own_lanes, 1
    if isinstance(index, tirx.Ramp):
        lanes *= int(index.lanes)
        lane_stride = int(index.stride) if isinstance(index.stride, tirx.IntImm) else 2
        index = index.base
    elif isinstance(index, tirx.Broadcast):
        lanes *= int(index.lanes)
        lane_stride = 0
        index = index.value
    place = _index_function(index, scope, ops)
    here = [0] * len(scope.loops)
    start = place(here)
    strides = []
    for depth in range(len(here)):
        here[depth] = 1
        strides.append((place(here) - start) * element_bytes * own_lanes)
        here[depth] = 0
    return Access(element_bytes, lanes, lane_stride, tuple(strides))


def _element(dtype: str) -> tuple[int, int]:
    """Bytes of a scalar and number of lanes of an element type such as ``float32x16``."""
    scalar, _, lanes = dtype.partition("x")
    bits = int("".join(c for c in scalar if c.isdigit()) or 8)
    if scalar.startswith("float8"):
        bits = 8
    return max(1, bits // 8), int(lanes or 1)


def _index_function(expr: ir.Expr, scope: _Scope, ops: Counter[str]) -> IndexFunction:
    """The index as a function of the loop variables; what cannot be read counts as 0."""
    kind = type(expr)
    if kind is tirx.IntImm:
        value = int(expr.value)
        return lambda _: value
    if kind is ir.Var:
        if expr in scope.slots:
            slot = scope.slots[expr]
            return lambda at: at[slot]
        if expr in scope.bound:
            return _index_function(scope.bound[expr], scope, ops)
        return lambda _: 0
    if kind is tirx.Cast:
        return _index_function(expr.value, scope, ops)
    if kind in _INTEGER_ARITHMETIC:
        if kind in (tirx.FloorDiv, tirx.FloorMod):
            ops["integer_divide"] += 1
        left = _index_function(expr.a, scope, ops)
        right = _index_function(expr.b, scope, ops)
        combine = _INTEGER_ARITHMETIC[kind]
        return lambda at: combine(left(at), right(at))
    if kind is ir.TensorLoad:
        ops["gather"] += 1
    return lambda _: 0


_INTEGER_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.Min: min,
    tirx.Max: max,
    tirx.FloorDiv: lambda a, b: a // b if b else 0,
    tirx.FloorMod: lambda a, b: a % b if b else 0,
}


def _largest(extent: ir.Expr) -> int:
    """The extent of a loop, or what bounds it from above."""
    if isinstance(extent, tirx.IntImm):
        return int(extent.value)
    if isinstance(extent, tirx.Min):
        return min(b for b in (_largest(extent.a), _largest(extent.b)) if b > 0)
    if isinstance(extent, tirx.Max):
        return max(_largest(extent.a), _largest(extent.b))
    if isinstance(extent, tirx.Sub):
        return _largest(extent.a)
    if isinstance(extent, tirx.Add):
        return _largest(extent.a) + _largest(extent.b)
    if isinstance(extent, tirx.Cast):
        return _largest(extent.value)
    return 1
