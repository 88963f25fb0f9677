"""Operation counts of expressions in a lowered kernel, and the movement of their indices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tvm import ir, tirx

from tvm_xengine.cost_models.features.accesses import Access
from tvm_xengine.relax_ir.identity import identity

OP_CLASSES = (
    *("add", "multiply", "divide", "root", "integer_divide", "compare", "branch", "select"),
    *("cast", "gather", "call"),
)
"""What is counted: ``gather`` is an index that is loaded, ``root`` a square root, ``call`` every
intrinsic that is not cheap, ``integer_divide`` one by no power of two."""

Ops = dict[str, int]
"""How many operations of each class."""

_CLASS_OF: dict[type, str] = {
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
    tirx.BitwiseAnd: "add",
    tirx.BitwiseOr: "add",
    tirx.BitwiseXor: "add",
    tirx.LShift: "add",
    tirx.RShift: "add",
}

_CHEAP_CALLS = {
    "fma": "multiply",
    "fabs": "compare",
    "shift_right": "add",
    "shift_left": "add",
    "bitwise_and": "add",
    "bitwise_or": "add",
    "bitwise_xor": "add",
    "bitwise_not": "add",
    "reinterpret": "cast",
    "if_then_else": "branch",
    "sqrt": "root",
    "likely": "",
}


def no_ops() -> Ops:
    """None of any class."""
    return dict.fromkeys(OP_CLASSES, 0)


Places = list[int]
"""An integer at the origin of the loops, and then for each loop after one iteration of it and in
its last iteration, the other loops at their origin."""


@dataclass(frozen=True)
class Loop:
    """A loop around a statement; `extent` is its largest number of iterations."""

    extent: int
    is_parallel: bool


@dataclass(frozen=True)
class Scope:
    """Where the walk is: the loops around it, and what the names in them mean.

    Variables are known by their :func:`identity`.

    Attributes
    ----------
    places
        What integers move like that are bound here.
    bound
        Other values that have a name.
    counted
        Those whose operations have been counted in this scope.
    guards
        Number of conditions around.
    accesses
        What has been found in these loops, so that equal accesses are one.
    iterations
        Of all loops together.
    """

    loops: tuple[Loop, ...] = ()
    places: dict[int, Places] = field(default_factory=dict)
    bound: dict[int, ir.Expr] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)
    weight: float = 1.0
    guards: int = 0
    accesses: dict[tuple[int, ...], Access] = field(default_factory=dict)
    iterations: int = 1

    def inside(self, var: ir.Var, extent: int, is_parallel: bool) -> Scope:
        """The scope of the body of a loop, or of the threads of a launch."""
        place = [0] * (1 + 2 * len(self.loops)) + [min(1, extent - 1), extent - 1]
        return Scope(
            loops=(*self.loops, Loop(extent, is_parallel)),
            places={**self.places, identity(var): place},
            bound=dict(self.bound),
            counted=set(self.bound),
            weight=self.weight,
            guards=self.guards,
            iterations=self.iterations * extent,
        )

    def guarded(self) -> Scope:
        """The scope of a branch."""
        return replace(
            self,
            places=dict(self.places),
            bound=dict(self.bound),
            counted=set(self.counted),
            guards=self.guards + 1,
        )

    def weighted(self, factor: float) -> Scope:
        """The scope of a statement that stands for several; names are shared."""
        return replace(self, weight=self.weight * factor)


OnLoad = Callable[[ir.TensorLoad], None]


def visit_value(expr: ir.Expr, scope: Scope, ops: Ops, on_load: OnLoad) -> None:
    """Count the operations of a value into `ops`; indices do not belong to it."""
    kind = type(expr)
    if kind in _CLASS_OF:
        op_class = _CLASS_OF[kind]
        if op_class == "integer_divide" and is_power_of_two(expr.b):
            op_class = "add"
        ops[op_class] += 1
        children = [expr.a, expr.b]
    elif kind is ir.TensorLoad:
        on_load(expr)
        return
    elif kind is ir.Call:
        called = str(expr.op.name).rpartition(".")[2] if isinstance(expr.op, ir.Op) else "call"
        if op_class := _CHEAP_CALLS.get(called, "call"):
            ops[op_class] += 1
        children = list(expr.args)
    elif kind is tirx.Let:
        visit_value(expr.value, scope, ops, on_load)
        children = [expr.body]
    elif kind is tirx.Select:
        ops["select"] += 1
        children = [expr.condition, expr.true_value, expr.false_value]
    elif kind is tirx.Cast:
        ops["cast"] += 1
        children = [expr.value]
    elif kind is tirx.Broadcast:
        children = [expr.value]
    elif kind in (tirx.Not, tirx.BitwiseNot):
        children = [expr.a]
    elif kind is ir.Var and (name := identity(expr)) in scope.bound and name not in scope.counted:
        scope.counted.add(name)
        children = [scope.bound[name]]
    else:
        return
    for child in children:
        visit_value(child, scope, ops, on_load)


def places_of(expr: ir.Expr, scope: Scope, ops: Ops) -> int | Places:
    """How an index moves with the loops; an integer when it does not, or cannot be read."""
    kind = type(expr)
    if kind is tirx.IntImm:
        return int(expr.value)
    if kind is ir.Var:
        name = identity(expr)
        if name in scope.places:
            return scope.places[name]
        if name in scope.bound:
            found = places_of(scope.bound[name], scope, ops)
            if not isinstance(found, int):
                scope.places[name] = found
            return found
        return 0
    if kind is tirx.Cast:
        return places_of(expr.value, scope, ops)
    if kind in _INTEGER_ARITHMETIC:
        if kind in (tirx.FloorDiv, tirx.FloorMod) and not is_power_of_two(expr.b):
            ops["integer_divide"] += 1
        left = places_of(expr.a, scope, ops)
        right = places_of(expr.b, scope, ops)
        return _combine(_INTEGER_ARITHMETIC[kind], left, right)
    if kind is ir.TensorLoad:
        ops["gather"] += 1
    return 0


def _combine(
    function: Callable[[int, int], int], left: int | Places, right: int | Places
) -> int | Places:
    if isinstance(left, int):
        if isinstance(right, int):
            return function(left, right)
        return [function(left, b) for b in right]
    if isinstance(right, int):
        return [function(a, right) for a in left]
    length = max(len(left), len(right))
    return [
        function(a, b) for a, b in zip(_longer(left, length), _longer(right, length), strict=True)
    ]


def _longer(places: Places, length: int) -> Places:
    """The same for more loops, with which it does not move."""
    return places + places[:1] * (length - len(places))


_INTEGER_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.Min: min,
    tirx.Max: max,
    tirx.FloorDiv: lambda a, b: a // b if b else 0,
    tirx.FloorMod: lambda a, b: a % b if b else 0,
    tirx.LShift: lambda a, b: a << max(0, min(b, 62)),
    tirx.RShift: lambda a, b: a >> max(0, min(b, 62)),
    tirx.BitwiseAnd: lambda a, b: a & b,
    tirx.BitwiseOr: lambda a, b: a | b,
    tirx.BitwiseXor: lambda a, b: a ^ b,
}


def is_power_of_two(expr: ir.Expr) -> bool:
    """Whether a divisor is a constant that a shift or a mask does for."""
    if not isinstance(expr, tirx.IntImm):
        return False
    value = int(expr.value)
    return value > 0 and value & (value - 1) == 0


def largest_value(extent: ir.Expr) -> int:
    """The extent of a loop, or what bounds it from above; at least 1."""
    return max(1, _largest(extent))


def _largest(extent: ir.Expr) -> int:
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
