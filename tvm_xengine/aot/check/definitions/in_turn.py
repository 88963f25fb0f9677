"""Loops whose turns depend on one another, as Python over numbers of numpy: no arrays of one element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np
from tvm import ir, tirx

from tvm_xengine.aot.check.definitions.expressions import (
    BINARY,
    FUNCTIONS,
    Expressions,
    Points,
    Run,
    called,
    reinterpreted,
)
from tvm_xengine.errors import UnsupportedModuleError

_OPERATORS: Mapping[type[ir.Expr], str] = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Mul: "*",
    tirx.FloorDiv: "//",
    tirx.FloorMod: "%",
    tirx.EQ: "==",
    tirx.NE: "!=",
    tirx.LT: "<",
    tirx.LE: "<=",
    tirx.GT: ">",
    tirx.GE: ">=",
    tirx.And: "and",
    tirx.Or: "or",
}
"""Those that are the same for numbers as for arrays in `BINARY`."""
_GROWING = (tirx.Add, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)
"""What is made of numbers from 0 on by these is no less."""
_INTEGERS = ("int32", "int64")
"""Python's integers stand for these."""


def in_turn(stmt: tirx.For | tirx.While, expressions: Expressions) -> Run:
    """Runs loops without blocks, one value after the other.

    Raises
    ------
    UnsupportedModuleError
        If a statement or an expression is not known.
    """
    text = _Text(expressions)
    body = "\n".join(f"    {line}" for line in text.lines(stmt))
    given = ", ".join([*text.arrays.values(), *text.outside.values()])
    names = dict(text.objects)
    exec(f"def run({given}):\n{body}\n", names)
    run = cast("Callable[..., None]", names["run"])

    def run_at(at: Points) -> None:
        if at.where is None or bool(at.where):
            values = [at.values[var][()] for var in text.outside]
            run(*(at.buffers[array] for array in text.arrays), *values)

    return run_at


class _Text:
    """Statements and expressions as text, and what its names stand for.

    Attributes
    ----------
    arrays, outside
        The names of arrays, and of variables that loops outside have given values.
    objects
        Constants and functions by name.
    """

    def __init__(self, expressions: Expressions) -> None:
        self.arrays: dict[ir.Var, str] = {}
        self.outside: dict[ir.Var, str] = {}
        self.objects: dict[str, object] = {"index": _index}
        self._inside: dict[ir.Var, str] = {}
        self._from_0: set[ir.Var] = set()
        self._expressions = expressions

    def lines(self, stmt: tirx.Stmt) -> Iterator[str]:
        """The lines of a statement."""
        match stmt:
            case tirx.SeqStmt():
                for child in stmt.seq:
                    yield from self.lines(child)
            case tirx.For():
                first, count = self.of(stmt.min), self.of(stmt.extent)
                name = self._bound(stmt.loop_var)
                if isinstance(stmt.min, tirx.IntImm) and int(stmt.min) >= 0:
                    self._from_0.add(stmt.loop_var)
                yield f"for {name} in range({first}, {first} + {count}):"
                yield from _indented(self.lines(stmt.body))
            case tirx.While():
                yield f"while {self.of(stmt.condition)}:"
                yield from _indented(self.lines(stmt.body))
            case tirx.BufferStore():
                yield f"{self._element(stmt.buffer, stmt.indices)} = {self.of(stmt.value)}"
            case tirx.Bind():
                value = self.of(stmt.value)
                yield f"{self._bound(stmt.var)} = {value}"
            case tirx.IfThenElse():
                yield f"if {self.of(stmt.condition)}:"
                yield from _indented(self.lines(stmt.then_case))
                if stmt.else_case is not None:
                    yield "else:"
                    yield from _indented(self.lines(stmt.else_case))
            case _:
                raise UnsupportedModuleError(f"{type(stmt).__name__} cannot be evaluated: {stmt}")

    def of(self, expr: ir.Expr) -> str:
        """The text of an expression."""
        kind = type(expr)
        if kind in BINARY:
            return self._binary(expr)
        match expr:
            case tirx.IntImm() | tirx.FloatImm():
                is_python = str(expr.ty.dtype) in _INTEGERS
                return str(int(expr.value)) if is_python else self._constant(expr)
            case ir.Var():
                return self._inside.get(expr) or self.outside.setdefault(
                    expr, f"outer{len(self.outside)}"
                )
            case ir.TensorLoad():
                return self._element(expr.source, expr.indices)
            case tirx.Cast():
                return self._cast(expr)
            case tirx.Not():
                return f"(not {self.of(expr.a)})"
            case tirx.Let():
                value = self.of(expr.value)
                return f"({self._bound(expr.var)} := {value}, {self.of(expr.body)})[1]"
            case tirx.Select():
                return self._choice(expr.condition, expr.true_value, expr.false_value)
            case ir.Call():
                return self._call(expr)
        raise UnsupportedModuleError(f"{kind.__name__} cannot be evaluated: {expr}")

    def _binary(self, expr: ir.Expr) -> str:
        kind, a, b = type(expr), self.of(expr.a), self.of(expr.b)
        is_integer = str(expr.ty.dtype) in _INTEGERS
        operator = "/" if kind is tirx.Div and not is_integer else _OPERATORS.get(kind)
        if operator is not None:
            return f"({a} {operator} {b})"
        if is_integer and kind in (tirx.Min, tirx.Max):
            return f"{'min' if kind is tirx.Min else 'max'}({a}, {b})"
        return f"{self._object(BINARY[kind])}({a}, {b})"

    def _choice(self, test: ir.Expr, yes: ir.Expr, no: ir.Expr) -> str:
        return f"({self.of(yes)} if {self.of(test)} else {self.of(no)})"

    def _call(self, expr: ir.Call) -> str:
        name, given = called(expr)
        if name == "if_then_else":
            return self._choice(*given)
        if name == "reinterpret":
            bits, dtype = str(given[0].ty.dtype), str(expr.ty.dtype)
            function = reinterpreted(bits, dtype, self._expressions.numpy_type(dtype))
            return f"{self._object(lambda x: function(x)[()])}({self.of(given[0])})"
        if name not in FUNCTIONS:
            raise UnsupportedModuleError(f"{name} cannot be evaluated: {expr}")
        arguments = ", ".join(map(self.of, given))
        return f"{self._object(FUNCTIONS[name])}({arguments})"

    def _cast(self, expr: tirx.Cast) -> str:
        value, before, after = self.of(expr.value), str(expr.value.ty.dtype), str(expr.ty.dtype)
        if before in _INTEGERS and after in _INTEGERS:
            return value
        dtype = self._expressions.numpy_type(after)
        if dtype.kind == "f":
            return f"{self._object(dtype.type)}({value})"
        return f"{self._object(lambda x: np.asarray(x).astype(dtype)[()])}({value})"

    def _element(self, source: ir.Var, indices: Sequence[ir.Expr]) -> str:
        array = self.arrays.setdefault(source, f"array{len(self.arrays)}")
        places = [
            self.of(one) if self._is_from_0(one) else f"index({self.of(one)})" for one in indices
        ]
        return f"{array}[{', '.join(places) or '()'}]"

    def _is_from_0(self, expr: ir.Expr) -> bool:
        """Whether an index is certainly no less than 0; where it is, numpy counts from the end."""
        if isinstance(expr, _GROWING):
            return self._is_from_0(expr.a) and self._is_from_0(expr.b)
        return expr in self._from_0 or (isinstance(expr, tirx.IntImm) and int(expr) >= 0)

    def _bound(self, var: ir.Var) -> str:
        return self._inside.setdefault(var, f"inner{len(self._inside)}")

    def _constant(self, expr: ir.Expr) -> str:
        return self._object(self._expressions.constant(expr)[()])

    def _object(self, value: object) -> str:
        name = f"object{len(self.objects)}"
        self.objects[name] = value
        return name


def _index(value: int) -> int:
    if value < 0:
        raise IndexError(f"an array has no element {value}")
    return value


def _indented(lines: Iterator[str]) -> Iterator[str]:
    yield from (f"    {line}" for line in lines)
