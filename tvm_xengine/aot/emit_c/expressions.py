"""TIR expressions as C expressions that compute the same bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tvm import ir, tirx

from tvm_xengine.aot.c_library import BINARY, EXTERN, UNARY
from tvm_xengine.aot.c_names import RESERVED
from tvm_xengine.aot.emit_c.types_in_c import (
    HALF_TYPES,
    NARROW_TYPES,
    float_literal,
    int_literal,
    is_float,
    stored_type,
    value_type,
)
from tvm_xengine.aot.emit_c.vectors.dot_products import DOT_PRODUCTS
from tvm_xengine.aot.emit_c.vectors.functions import LANES, VECTOR, VECTOR_TYPES
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.lower.transcendentals.expand import written_out

_MOST_ROUNDED = 2.0**22
"""Numbers of smaller size leave, added to 1.5 * 2**23, the integer nearest to them in the low bits."""

_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
_COMPARISON = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_BITS = {
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "shift_left": "<<",
    "shift_right": ">>",
}
_BIT_NODES = {
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "LShift": "shift_left",
    "RShift": "shift_right",
}


def dtype_of(expr: ir.Expr) -> str:
    """Element type of an expression; vectors are refused."""
    dtype = str(expr.ty.dtype)
    if "x" in dtype:
        raise UnsupportedModuleError(f"the C back end has no vectors, found {dtype} in {expr}")
    return dtype


@dataclass
class Names:
    """A C name for each variable of one kernel."""

    taken: set[str] = field(default_factory=set)
    of: dict[ir.Var, str] = field(default_factory=dict)

    def fresh(self, wish: str) -> str:
        """An unused name similar to `wish`."""
        base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in wish)
        base = base if base and not base[0].isdigit() else f"v_{base}"
        base = f"{base}_" if base in RESERVED else base
        name, count = base, 1
        while name in self.taken:
            name, count = f"{base}_{count}", count + 1
        self.taken.add(name)
        return name

    def give(self, var: ir.Var) -> str:
        """A fresh name for `var`."""
        self.of[var] = self.fresh(var.name)
        return self.of[var]


class ExpressionWriter:
    """Writes expressions; computations that must come first go to `lines`.

    ``let`` inside an expression becomes a variable, defined where it is needed: behind the
    condition that guards it. Arrays that live in vector variables, `registers`, are read by lane.
    """

    def __init__(
        self,
        names: Names,
        helpers: set[str],
        registers: Mapping[ir.Var, Sequence[str]],
    ) -> None:
        self.names = names
        self.helpers = helpers
        self.registers = registers
        self.lines: list[str] = []

    def write(self, expr: ir.Expr) -> str:
        """`expr` in C."""
        kind = type(expr).__name__
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], expr)
        if kind in _COMPARISON:
            return self._comparison(kind, expr)
        if kind in _BIT_NODES:
            return self._bits(_BIT_NODES[kind], expr, expr.a, expr.b)
        writer = _WRITERS.get(kind)
        if writer is None:
            raise UnsupportedModuleError(
                f"the C back end cannot emit the expression {kind}: {expr}"
            )
        return writer(self, expr)

    def helper(self, name: str) -> str:
        """`name`, noted as used."""
        self.helpers.add(name)
        return name

    def stored(self, text: str, dtype: str) -> str:
        """The value `text` as it is stored in memory."""
        return f"{self.helper(f'xe_store_{dtype}')}({text})" if dtype in HALF_TYPES else text

    def element(self, buffer: ir.Var, index: ir.Expr) -> str:
        """The place of an element."""
        return f"{self.names.of[buffer]}[{self.write(index)}]"

    def _rounded(self, text: str, dtype: str) -> str:
        """The result of an operation, rounded as its type asks for."""
        if dtype in HALF_TYPES:
            load, store = self.helper(f"xe_load_{dtype}"), self.helper(f"xe_store_{dtype}")
            return f"{load}({store}({text}))"
        if dtype in NARROW_TYPES:
            return f"({stored_type(dtype)})({text})"
        return text

    def _arithmetic(self, operator: str, expr: ir.Expr) -> str:
        text = f"({self.write(expr.a)} {operator} {self.write(expr.b)})"
        return self._rounded(text, dtype_of(expr))

    def _comparison(self, kind: str, expr: ir.Expr) -> str:
        a, b = self.write(expr.a), self.write(expr.b)
        if kind in ("EQ", "NE") and is_float(dtype_of(expr.a)):
            return self._equal(a, b, dtype_of(expr.a), "!" * (kind == "NE"))
        return f"({a} {_COMPARISON[kind]} {b})"

    def _equal(self, a: str, b: str, dtype: str, negated: str = "") -> str:
        """Whether two floats are equal, or not, without the warning of compilers."""
        function = self.helper("xe_equal" if dtype == "float64" else "xe_equalf")
        return f"({negated}{function}({a}, {b}))"

    def _bits(self, name: str, expr: ir.Expr, a: ir.Expr, b: ir.Expr) -> str:
        dtype = dtype_of(expr)
        left, right = self.write(a), self.write(b)
        if name == "shift_left" and dtype in ("int32", "int64"):
            # A sign bit may be shifted out, which C leaves undefined for signed numbers.
            return f"({dtype}_t)((u{dtype}_t){left} << {right})"
        return self._rounded(f"({left} {_BITS[name]} {right})", dtype)

    def _var(self, expr: ir.Var) -> str:
        if expr not in self.names.of:
            raise UnsupportedModuleError(f"the C back end found {expr.name} before its definition")
        return self.names.of[expr]

    def _int(self, expr: tirx.IntImm) -> str:
        return int_literal(int(expr.value), dtype_of(expr))

    def _float(self, expr: tirx.FloatImm) -> str:
        return float_literal(float(expr.value), dtype_of(expr))

    def _load(self, expr: ir.Expr) -> str:
        dtype, index = dtype_of(expr), _only_index(expr.indices)
        if expr.source in self.registers:
            vector = self.registers[expr.source][int(index) // LANES]
            self.helper(VECTOR_TYPES)
            return f"{self.helper(f'{VECTOR[dtype]}_lane')}({vector}, {int(index) % LANES})"
        element = self.element(expr.source, index)
        return f"{self.helper(f'xe_load_{dtype}')}({element})" if dtype in HALF_TYPES else element

    def _cast(self, expr: tirx.Cast) -> str:
        dtype, source = dtype_of(expr), dtype_of(expr.value)
        if dtype == "int32" and source == "float32" and is_small_and_rounded(expr.value):
            return f"{self.helper('xe_nearest')}({self.write(expr.value.args[-1])})"
        value = self.write(expr.value)
        if is_float(source) and not is_float(dtype) and isinstance(expr.value, ir.Call):
            # Compilers warn of casts of calls.
            value = self._named("real", value_type(source), value)
        if dtype == "bool":
            if is_float(source):
                return self._equal(value, float_literal(0.0, source), source, "!")
            return f"({value} != 0)"
        return self._rounded(f"({value_type(dtype)})({value})", dtype)

    def _max(self, expr: tirx.Max) -> str:
        return self._choice("max", expr)

    def _min(self, expr: tirx.Min) -> str:
        return self._choice("min", expr)

    def _choice(self, name: str, expr: ir.Expr) -> str:
        dtype = dtype_of(expr)
        suffix = {"float64": "", "int64": "i", "uint64": "i", "uint32": "i"}.get(
            dtype, "f" if is_float(dtype) else "w"
        )
        function = self.helper(f"xe_{name}{suffix}")
        text = f"{function}({self.write(expr.a)}, {self.write(expr.b)})"
        return f"({value_type(dtype)}){text}" if not is_float(dtype) else text

    def _and(self, expr: tirx.And) -> str:
        return self._short_circuit("&&", expr)

    def _or(self, expr: tirx.Or) -> str:
        return self._short_circuit("||", expr)

    def _short_circuit(self, operator: str, expr: ir.Expr) -> str:
        left = self.write(expr.a)
        right, lines = self._apart(expr.b)
        if not lines:
            return f"({left} {operator} {right})"
        name = self.names.fresh("holds")
        guard = name if operator == "&&" else f"!{name}"
        self.lines += [f"int {name} = {left};", f"if ({guard}) {{", *_indented(lines)]
        self.lines += [f"  {name} = {right};", "}"]
        return name

    def _not(self, expr: tirx.Not) -> str:
        return f"(!{self.write(expr.a)})"

    def _select(self, expr: tirx.Select) -> str:
        return self._conditional(expr, expr.condition, expr.true_value, expr.false_value)

    def _conditional(self, expr: ir.Expr, test: ir.Expr, yes: ir.Expr, no: ir.Expr) -> str:
        condition = self.write(test)
        (yes_text, yes_lines), (no_text, no_lines) = self._apart(yes), self._apart(no)
        if not yes_lines and not no_lines:
            return f"({condition} ? {yes_text} : {no_text})"
        name = self.names.fresh("chosen")
        bare = without_parentheses(condition)
        self.lines += [f"{value_type(dtype_of(expr))} {name};", f"if ({bare}) {{"]
        self.lines += [*_indented(yes_lines), f"  {name} = {yes_text};", "} else {"]
        self.lines += [*_indented(no_lines), f"  {name} = {no_text};", "}"]
        return name

    def _apart(self, expr: ir.Expr) -> tuple[str, list[str]]:
        """`expr` in C, and the lines that it alone needs before it."""
        mine, self.lines = self.lines, []
        text = self.write(expr)
        lines, self.lines = self.lines, mine
        return text, lines

    def _let(self, expr: tirx.Let) -> str:
        value = self.write(expr.value)
        # The same variable may be bound in two branches of one expression.
        name = self.names.give(expr.var)
        self.lines.append(f"const {value_type(dtype_of(expr.value))} {name} = {value};")
        return self.write(expr.body)

    def _named(self, wish: str, kind: str, value: str) -> str:
        """A new variable that holds `value`."""
        name = self.names.fresh(wish)
        self.lines.append(f"const {kind} {name} = {value};")
        return name

    def _call(self, expr: ir.Call) -> str:
        name = expr.op.name if isinstance(expr.op, ir.Op) else str(expr.op)
        short = name.rpartition(".")[2]
        args = list(expr.args)
        if short == "if_then_else":
            return self._conditional(expr, *args)
        if short == "reinterpret":
            return self._reinterpret(dtype_of(expr), args[0])
        if short in ("call_pure_extern", "call_extern"):
            return self._extern(expr, str(args[0].value), args[1:])
        if short == "address_of":
            return f"&{self.element(args[0].source, _only_index(args[0].indices))}"
        if short in ("likely", "ret"):
            return self.write(args[0])
        if short in _BITS:
            return self._bits(short, expr, *args)
        if short == "bitwise_not":
            return self._rounded(f"(~{self.write(args[0])})", dtype_of(expr))
        if short in UNARY or short in BINARY:
            return self._library({**UNARY, **BINARY}[short], expr, args)
        special = _SPECIAL.get(short)
        if special is not None:
            return special(self, expr, args)
        raise UnsupportedModuleError(f"the C back end cannot emit a call of {name}: {expr}")

    def _library(self, function: str, expr: ir.Call, args: list[ir.Expr]) -> str:
        dtype = dtype_of(expr)
        suffix = "" if dtype == "float64" else "f"
        values = ", ".join(self.write(arg) for arg in args)
        return self._rounded(f"{function}{suffix}({values})", dtype)

    def _extern(self, expr: ir.Call, function: str, args: list[ir.Expr]) -> str:
        if function in DOT_PRODUCTS or written_out(function):
            self.helper(function)
        elif function not in EXTERN:
            raise UnsupportedModuleError(
                f"the C back end cannot emit a call of the function {function!r}: it is not in the"
                " C library"
            )
        values = ", ".join(self.write(arg) for arg in args)
        return self._rounded(f"{function}({values})", dtype_of(expr))

    def _reinterpret(self, dtype: str, value: ir.Expr) -> str:
        source, text = dtype_of(value), self.write(value)
        if is_float(dtype) == is_float(source) and source not in HALF_TYPES:
            return f"({value_type(dtype)})({text})"
        if source in HALF_TYPES:
            return f"({stored_type(dtype)}){self.helper(f'xe_store_{source}')}({text})"
        if dtype in HALF_TYPES:
            return f"{self.helper(f'xe_load_{dtype}')}((uint16_t)({text}))"
        if dtype in ("float32", "float64"):
            wide = {"float32": ("float", 32), "float64": ("double", 64)}[dtype]
            return f"{self.helper(f'xe_{wide[0]}_of_bits')}((uint{wide[1]}_t)({text}))"
        kind = {"float32": "float", "float64": "double"}[source]
        return f"({stored_type(dtype)}){self.helper(f'xe_bits_of_{kind}')}({text})"


def is_small_and_rounded(expr: ir.Expr) -> bool:
    """Whether an expression is rounded, half to even, between constants that `xe_nearest` takes."""
    if not isinstance(expr, ir.Call) or len(expr.args) != 2:
        return False
    function, outer = expr.args
    if getattr(function, "value", None) != "nearbyintf":
        return False
    kinds = {tirx.Min: tirx.Max, tirx.Max: tirx.Min}
    inner = outer.a if type(outer) in kinds else None
    if not isinstance(inner, kinds.get(type(outer), ())):
        return False
    bounds = (outer.b, inner.b)
    return all(isinstance(b, tirx.FloatImm) and abs(float(b.value)) < _MOST_ROUNDED for b in bounds)


def _rsqrt(writer: ExpressionWriter, expr: ir.Call, args: list[ir.Expr]) -> str:
    root = writer._library("sqrt", expr, args)
    one = float_literal(1.0, dtype_of(expr))
    return writer._rounded(f"({one} / {root})", dtype_of(expr))


def _sigmoid(writer: ExpressionWriter, expr: ir.Call, args: list[ir.Expr]) -> str:
    dtype = dtype_of(expr)
    one, suffix = float_literal(1.0, dtype), "" if dtype == "float64" else "f"
    return writer._rounded(f"({one} / ({one} + exp{suffix}(-({writer.write(args[0])}))))", dtype)


def _isnan(writer: ExpressionWriter, _expr: ir.Call, args: list[ir.Expr]) -> str:
    return f"(isnan({writer.write(args[0])}) != 0)"


def _isinf(writer: ExpressionWriter, _expr: ir.Call, args: list[ir.Expr]) -> str:
    return f"(isinf({writer.write(args[0])}) != 0)"


def _abs(writer: ExpressionWriter, expr: ir.Call, args: list[ir.Expr]) -> str:
    value, lines = writer._apart(args[0])
    kind = value_type(dtype_of(expr))
    writer.lines += lines
    name = writer._named("signed", kind, value)
    return f"({name} < 0 ? ({kind})-{name} : {name})"


def _popcount(writer: ExpressionWriter, expr: ir.Call, args: list[ir.Expr]) -> str:
    bits = stored_type(dtype_of(args[0])).removeprefix("u")
    count = f"{writer.helper('xe_popcount')}((u{bits})({writer.write(args[0])}))"
    return f"({value_type(dtype_of(expr))}){count}"


def _clz(writer: ExpressionWriter, expr: ir.Call, args: list[ir.Expr]) -> str:
    bits = stored_type(dtype_of(args[0])).removeprefix("u")
    width = "".join(filter(str.isdigit, bits))
    count = f"{writer.helper('xe_clz')}((u{bits})({writer.write(args[0])}), {width})"
    return f"({value_type(dtype_of(expr))}){count}"


def _large_uint(_writer: ExpressionWriter, _expr: ir.Call, args: list[ir.Expr]) -> str:
    low, high = (int(arg.value) for arg in args)
    return f"{(high << 32) | low}ull"


_SPECIAL: Mapping[str, Callable[[ExpressionWriter, ir.Call, list[ir.Expr]], str]] = {
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "isnan": _isnan,
    "isinf": _isinf,
    "abs": _abs,
    "popcount": _popcount,
    "clz": _clz,
    "large_uint_imm": _large_uint,
}

_WRITERS: Mapping[str, Callable[[ExpressionWriter, ir.Expr], str]] = {
    "Var": ExpressionWriter._var,
    "IntImm": ExpressionWriter._int,
    "FloatImm": ExpressionWriter._float,
    "TensorLoad": ExpressionWriter._load,
    "Cast": ExpressionWriter._cast,
    "Max": ExpressionWriter._max,
    "Min": ExpressionWriter._min,
    "And": ExpressionWriter._and,
    "Or": ExpressionWriter._or,
    "Not": ExpressionWriter._not,
    "Select": ExpressionWriter._select,
    "Let": ExpressionWriter._let,
    "Call": ExpressionWriter._call,
}


def without_parentheses(text: str) -> str:
    """`text` without the pair of parentheses around all of it, if there is one.

    `if ((a == b))` would make clang ask whether `=` was meant.
    """
    if not text.startswith("("):
        return text
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def _only_index(indices: object) -> ir.Expr:
    flat = list(indices)  # type: ignore[call-overload]
    if len(flat) != 1:
        raise UnsupportedModuleError(f"the C back end expects flat buffers, found the index {flat}")
    return flat[0]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
