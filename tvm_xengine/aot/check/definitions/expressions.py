"""Expressions of kernels as functions of numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm_ffi
from numpy.typing import DTypeLike, NDArray
from scipy import special
from tvm import ir, tirx

from tvm_xengine.errors import UnsupportedModuleError

Array = NDArray[np.generic]


@dataclass
class Points:
    """The points of some loops, at all of which an expression is evaluated at once.

    Attributes
    ----------
    buffers
        What is in memory.
    values
        Of variables: an array has a dimension for each loop, of size 1 where it is the same all along it.
    loop_of
        Of variables that take every value from 0 on along one loop: its position and number of values.
    sizes
        How many values each loop has.
    where
        The points at which statements run; None for all.
    """

    buffers: dict[ir.Var, Array]
    values: dict[ir.Var, Array] = field(default_factory=dict)
    loop_of: dict[ir.Var, tuple[int, int]] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    where: Array | None = None


Evaluate = Callable[[Points], Array]
Run = Callable[[Points], None]
Errors = Callable[[tuple[int, ...]], NDArray[np.float64]]


_ROUNDING_ERROR = 2.0**-24
"""Of a sum of two in float32, relative to it."""


@dataclass(frozen=True)
class Expressions:
    """Makes functions of expressions; `wide` stands for the wide types of floating-point numbers.

    Attributes
    ----------
    errors
        Where given, makes numbers of a shape, by which sums are off as sums in float32 are.
    """

    wide: DTypeLike
    errors: Errors | None = None

    def rounded(self, total: Array, terms: int) -> Array:
        """A sum of so many terms, off as one that takes them one after the other (Higham 2002, section 4.2).

        Each addition rounds, so the errors add up as a random walk does. What is drawn is 5 to 12 times as
        large as the errors of such sums of normal numbers (tests), as other loops add in other orders.
        """
        if self.errors is None or total.dtype.kind != "f":
            return total
        drawn = self.errors(total.shape)
        scale = np.abs(total) + np.sqrt(np.mean(np.square(total)))
        return np.asarray(total + drawn * _ROUNDING_ERROR * np.sqrt(terms) * scale, total.dtype)

    def allocation(self, buffer: ir.Var) -> Callable[[], Array]:
        """Makes memory for an array, which holds nothing yet."""
        shape = [int(extent) for extent in buffer.ty.shape]
        dtype = self.numpy_type(str(buffer.ty.dtype))
        return lambda: np.full(shape, np.nan if dtype.kind == "f" else 0, dtype)

    def numpy_type(self, dtype: str) -> np.dtype[np.generic]:
        """The type that stands for `dtype`."""
        return np.dtype(self.wide if dtype in ("float32", "float64") else dtype)

    def constant(self, expr: ir.Expr) -> Array:
        """A number; it has its type's own precision, however wide computations are."""
        value = np.asarray(expr.value).astype(str(expr.ty.dtype))
        return value.astype(self.numpy_type(str(expr.ty.dtype)))

    def of(self, expr: ir.Expr, guarded: bool = False) -> Evaluate:
        """The value of `expr`; under a condition, `guarded`, it may read what is not there."""
        kind = type(expr)
        if kind in BINARY:
            guards = guarded or kind in (tirx.And, tirx.Or)
            function, a, b = BINARY[kind], self.of(expr.a, guarded), self.of(expr.b, guards)
            return lambda at: function(a(at), b(at))
        match expr:
            case tirx.IntImm() | tirx.FloatImm():
                wide = self.constant(expr)
                return lambda _: wide
            case ir.Var():
                return lambda at: at.values[expr]
            case ir.TensorLoad():
                return self._load(expr, guarded)
            case tirx.Cast():
                return self._cast(expr, guarded)
            case tirx.Not():
                inner = self.of(expr.a, guarded)
                return lambda at: np.logical_not(inner(at))
            case tirx.Let():
                return self._let(expr, guarded)
            case tirx.Select():
                return self._choice(expr.condition, expr.true_value, expr.false_value, guarded)
            case ir.Call():
                return self._call(expr, guarded)
        raise UnsupportedModuleError(f"{kind.__name__} cannot be evaluated: {expr}")

    def place(
        self, source: ir.Var, indices: list[ir.Expr], guarded: bool
    ) -> Callable[[Points], tuple[Array, ...]]:
        """The index of an element of an array; one that is outside is moved to the edge if `guarded`."""
        parts = [self.of(index, guarded) for index in indices]

        def index(at: Points) -> tuple[Array, ...]:
            found = [part(at) for part in parts]
            for d, (one, size) in enumerate(zip(found, at.buffers[source].shape, strict=True)):
                if np.any(np.less(one, 0) | np.greater_equal(one, size)):
                    if not guarded:
                        raise IndexError(f"{source.name} has no such element in dimension {d}")
                    found[d] = np.clip(one, 0, size - 1)
            return tuple(found)

        return index

    def whole(self, source: ir.Var, indices: list[ir.Expr]) -> Callable[[Points], Array | None]:
        """All of an array with its dimensions where the loops are, if each index is a loop of its size."""

        known: tuple[Mapping[ir.Var, tuple[int, int]], _Turn | None] = ({}, None)

        def view(at: Points) -> Array | None:
            nonlocal known
            array = at.buffers[source]
            if known[0] is not at.loop_of:
                known = at.loop_of, _turn_of(array.shape, indices, at)
            if (turn := known[1]) is None:
                return None
            return array.reshape(turn.kept).transpose(turn.order).reshape(turn.spread)

        return view

    def store(self, stmt: tirx.BufferStore, value: Evaluate, guarded: bool = False) -> Run:
        """Stores a value where `stmt` does."""
        given = stmt.buffer, list(stmt.indices)
        whole, place = self.whole(*given), self.place(*given, guarded)

        def store(at: Points) -> None:
            array, found = at.buffers[stmt.buffer], np.asarray(value(at))
            view = whole(at) if at.where is None else None
            if view is not None:
                view[...] = found
            elif at.where is None:
                places = place(at)
                is_one = all(one.ndim == 0 for one in places)
                array[places] = found.reshape(()) if is_one else found
            else:
                *spread, found, where = np.broadcast_arrays(*place(at), found, at.where)
                array[tuple(one[where] for one in spread)] = found[where]

        return store

    def _load(self, expr: ir.TensorLoad, guarded: bool) -> Evaluate:
        given = expr.source, list(expr.indices)
        whole, place = self.whole(*given), self.place(*given, guarded)

        def load(at: Points) -> Array:
            view = whole(at)
            return _elements(at.buffers[expr.source], place(at)) if view is None else view

        return load

    def _cast(self, expr: tirx.Cast, guarded: bool) -> Evaluate:
        value, dtype = self.of(expr.value, guarded), self.numpy_type(str(expr.ty.dtype))
        return lambda at: np.asarray(value(at)).astype(dtype)

    def _let(self, expr: tirx.Let, guarded: bool) -> Evaluate:
        value, body = self.of(expr.value, guarded), self.of(expr.body, guarded)

        def let(at: Points) -> Array:
            at.values[expr.var] = value(at)
            return body(at)

        return let

    def _choice(self, test: ir.Expr, yes: ir.Expr, no: ir.Expr, guarded: bool) -> Evaluate:
        condition = self.of(test, guarded)
        a, b = self.of(yes, True), self.of(no, True)

        def choose(at: Points) -> Array:
            holds = condition(at)
            return a(at) if np.all(holds) else np.where(holds, a(at), b(at))

        return choose

    def _call(self, expr: ir.Call, guarded: bool) -> Evaluate:
        name, given = called(expr)
        if name == "if_then_else":
            test, yes, no = given
            return self._choice(test, yes, no, guarded)
        args = [self.of(arg, guarded) for arg in given]
        if name == "reinterpret":
            dtype = str(expr.ty.dtype)
            turned = reinterpreted(str(given[0].ty.dtype), dtype, self.numpy_type(dtype))
            return lambda at: turned(args[0](at))
        if name not in FUNCTIONS:
            raise UnsupportedModuleError(f"{name} cannot be evaluated: {expr}")
        function = FUNCTIONS[name]
        return lambda at: function(*(arg(at) for arg in args))


@dataclass(frozen=True)
class _Turn:
    """How an array gets its dimensions where loops are: those longer than 1, in another order, spread."""

    kept: tuple[int, ...]
    order: Array
    spread: tuple[int, ...]


def _turn_of(shape: tuple[int, ...], indices: Sequence[ir.Expr], at: Points) -> _Turn | None:
    """None unless each dimension longer than 1 is all of a loop of its own."""
    kept = [d for d, size in enumerate(shape) if size > 1]
    loops = [at.loop_of.get(indices[d], (-1, 0)) for d in kept]
    found = dict(loops)
    if len(found) < len(kept) or [size for _, size in loops] != [shape[d] for d in kept]:
        return None
    spread = tuple(found.get(position, 1) for position in range(len(at.sizes)))
    return _Turn(tuple(shape[d] for d in kept), np.argsort(list(found)), spread)


def called(expr: ir.Call) -> tuple[str, list[ir.Expr]]:
    """What a call calls, by the name in `FUNCTIONS` where it is there, and what with."""
    name = str(expr.op.name).rpartition(".")[2] if isinstance(expr.op, ir.Op) else str(expr.op)
    given = list(expr.args)
    if name in ("call_pure_extern", "call_extern"):
        return str(given[0].value).removesuffix("f"), given[1:]
    return name, given


def reinterpreted(bits: str, dtype: str, stands: np.dtype[np.generic]) -> Callable[[Array], Array]:
    """The bits of numbers of one type as numbers of another, for which a third stands."""
    return lambda given: np.asarray(given).astype(bits).view(dtype).astype(stands)


def _elements(array: Array, places: Sequence[Array]) -> Array:
    """What is at the places, which are given for each dimension.

    Dimensions without a loop in common are taken one after the other, which copies rows instead of elements.
    """
    loops = [[k for k in range(-place.ndim, 0) if place.shape[k] != 1] for place in places]
    in_order = [k for inside in loops for k in inside]
    if len(set(in_order)) < len(in_order):
        return np.asarray(array[tuple(places)])
    for d in reversed(range(len(places))):
        taken = np.asarray(places[d].reshape(-1), np.intp)
        if not np.array_equal(taken, np.arange(array.shape[d])):
            array = np.take(array, taken, axis=d)
    sizes = {k: place.shape[k] for place, inside in zip(places, loops, strict=True) for k in inside}
    turned = array.reshape([sizes[k] for k in in_order]).transpose(np.argsort(in_order))
    count = max((place.ndim for place in places), default=0)
    return turned.reshape([sizes.get(k, 1) for k in range(-count, 0)])


def variables(part: ir.Expr) -> set[ir.Var]:
    """The variables that an expression reads, arrays among them."""
    found: set[ir.Var] = set()
    tvm_ffi.structural_walk(part, (ir.Var, found.add))
    return found


def _towards_zero(a: Array, b: Array) -> Array:
    if np.result_type(a, b).kind in "iu":
        return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)))
    return np.asarray(np.divide(a, b))


BINARY: Mapping[type[ir.Expr], Callable[..., Array]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: _towards_zero,
    tirx.Mod: np.fmod,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.BitwiseXor: np.bitwise_xor,
    tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
}
"""What stands for operators."""

_SAME_NAME = (
    "exp exp2 log log2 log10 log1p expm1 sqrt sin cos tan sinh cosh tanh asinh acosh atanh floor ceil trunc"
    " fabs isnan isinf isfinite copysign hypot fmod nextafter ldexp bitwise_and bitwise_or bitwise_xor"
)
FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in _SAME_NAME.split()},
    "abs": np.abs,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "bitwise_not": np.invert,
    "erf": special.erf,
    "erfc": special.erfc,
    "exp10": lambda x: np.power(10, x),
    "large_uint_imm": lambda low, high: np.asarray((int(high) << 32) | int(low), "uint64"),
    "likely": lambda x: x,
    "nearbyint": np.rint,
    "pow": np.power,
    "round": np.rint,  # halves to even, as in C
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "sigmoid": special.expit,
}
"""What a kernel may call, by its name in TVM."""
