"""Statements for the loops that are written as vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.aot.emit_c.expressions import ExpressionWriter
from tvm_xengine.aot.emit_c.types_in_c import value_type
from tvm_xengine.aot.emit_c.vectors.functions import LANES, VECTOR, VECTOR_TYPES
from tvm_xengine.aot.emit_c.vectors.loops import VectorLoop, element_type, mentions, step_of


class VectorWriter:
    """Writes the stores of a vector loop.

    Parameters
    ----------
    registers
        The variables of the arrays that live in registers.
    operands
        Variables for what several products of a block read: GCC loads a number once more for each.
    """

    def __init__(
        self,
        vectors: VectorLoop,
        scalars: ExpressionWriter,
        registers: Mapping[ir.Var, Sequence[str]],
        operands: dict[str, str],
    ) -> None:
        self._vectors = vectors
        self._scalars = scalars
        self._registers = registers
        self._operands = operands

    def store(self, store: tirx.BufferStore, first: int | None) -> str:
        """The statement that stores four elements: from `first`, or from the variable of the loop."""
        (index,) = store.indices
        is_narrow = element_type(store.buffer) == "int8"
        whole = store.value.value if is_narrow else store.value
        value = self._sum(store, first) or self._write(whole, first)
        place = self._place(store.buffer, index, first)
        if store.buffer in self._registers:
            return f"{place} = {value};"
        if is_narrow:
            step = step_of(index, self._vectors.loop.loop_var)
            if step == 1:
                return f"{self._name('store_bytes', whole)}(&{place}, {value});"
            return f"{self._name('store_bytes_apart', whole)}(&{place}, {step}, {value});"
        return f"{self._name('store', store.value)}(&{place}, {value});"

    def _sum(self, store: tirx.BufferStore, first: int | None) -> str | None:
        """A product that is added to a register."""
        value = store.value
        if store.buffer not in self._registers or not isinstance(value, tirx.Add):
            return None
        for old, added in ((value.a, value.b), (value.b, value.a)):
            if not isinstance(added, tirx.Mul) or not _is_old(store, old):
                continue
            a, b = added.a, added.b
            if self._is_scalar(a):
                a, b = b, a
            name = "add_scaled" if self._is_scalar(b) else "add_product"
            place = self._place(store.buffer, store.indices[0], first)
            given = ", ".join(self._operand(part, first) for part in (a, b))
            return f"{self._name(name, value)}({place}, {given})"
        return None

    def _operand(self, expr: ir.Expr, first: int | None) -> str:
        is_scalar = self._is_scalar(expr)
        text = self._scalars.write(expr) if is_scalar else self._write(expr, first)
        if text not in self._operands:
            kind = value_type(str(expr.ty.dtype)) if is_scalar else VECTOR[str(expr.ty.dtype)]
            wish = "factor" if is_scalar else "vector"
            self._operands[text] = self._scalars.names.fresh(wish)
            self._scalars.lines.append(f"const {kind} {self._operands[text]} = {text};")
        return self._operands[text]

    def _write(self, expr: ir.Expr, first: int | None) -> str:
        if self._is_scalar(expr):
            return f"{self._name('all', expr)}({self._scalars.write(expr)})"
        match expr:
            case ir.TensorLoad():
                place = self._place(expr.source, expr.indices[0], first)
                is_register = expr.source in self._registers
                return place if is_register else f"{self._name('load', expr)}(&{place})"
            case tirx.Mul() if self._is_scalar(expr.a) or self._is_scalar(expr.b):
                a, b = (expr.b, expr.a) if self._is_scalar(expr.a) else (expr.a, expr.b)
                scaled, factor = self._write(a, first), self._scalars.write(b)
                return f"{self._name('scale', expr)}({scaled}, {factor})"
            case tirx.Add() | tirx.Sub() | tirx.Mul():
                return self._call(type(expr).__name__.lower(), (expr.a, expr.b), first)
            case tirx.Max() | tirx.Min() if _is_bounded(expr):
                name = "above" if isinstance(expr, tirx.Max) else "below"
                bounded, bound = self._write(expr.a, first), self._scalars.write(expr.b)
                return f"{self._name(name, expr)}({bounded}, {bound})"
            case tirx.Max():  # as `xe_maxf`, whatever compares with a NaN
                return self._call("if_gt", (expr.a, expr.b, expr.a, expr.b), first)
            case tirx.Min():
                return self._call("if_gt", (expr.b, expr.a, expr.a, expr.b), first)
            case tirx.Cast():
                return self._cast(expr, first)
            case tirx.Select():
                return self._choice(first, expr.condition, expr.true_value, expr.false_value)
        return self._choice(first, *expr.args)

    def _cast(self, cast: tirx.Cast, first: int | None) -> str:
        value = cast.value
        match str(value.ty.dtype):
            case "int8":
                (index,) = value.indices
                place = self._place(value.source, index, first)
                step = step_of(index, self._vectors.loop.loop_var)
                if step == 1:
                    return f"{self._name('load_bytes', cast)}(&{place})"
                return f"{self._name('load_bytes_apart', cast)}(&{place}, {step})"
            case "float32":
                self._scalars.helper("xe_nearest")
                return f"{self._name('nearest', cast)}({self._write(value.args[-1], first)})"
        return f"{self._name('of_integers', cast)}({self._write(value, first)})"

    def _choice(self, first: int | None, test: ir.Expr, yes: ir.Expr, no: ir.Expr) -> str:
        a, b = test.a, test.b
        match test:
            case tirx.GT() | tirx.LT():
                name = "if_gt"
            case tirx.GE() | tirx.LE():
                name = "if_ge"
            case _:
                name = "if_eq"
        if isinstance(test, (tirx.LT, tirx.LE)):
            a, b = b, a
        if isinstance(test, tirx.NE):
            yes, no = no, yes
        return self._call(name, (a, b, yes, no), first)

    def _call(self, name: str, args: Sequence[ir.Expr], first: int | None) -> str:
        written = ", ".join(self._write(arg, first) for arg in args)
        return f"{self._name(name, args[0])}({written})"

    def _place(self, buffer: ir.Var, index: ir.Expr, first: int | None) -> str:
        here = index if first is None else self._vectors.index(index, first)
        if buffer in self._registers:
            return self._registers[buffer][int(here) // LANES]
        return self._scalars.element(buffer, here)

    def _is_scalar(self, expr: ir.Expr) -> bool:
        return not mentions(expr, self._vectors.loop.loop_var)

    def _name(self, name: str, of: ir.Expr) -> str:
        """The function for vectors of what an expression has."""
        self._scalars.helper(VECTOR_TYPES)
        return self._scalars.helper(f"{VECTOR[str(of.ty.dtype)]}_{name}")


def _is_bounded(expr: tirx.Max | tirx.Min) -> bool:
    """Whether Helium's maximum or minimum is the bits of `xe_maxf`: no zeros of two signs meet.

    What is computed is no signalling NaN, of which Helium would make a NaN.
    """
    is_constant = isinstance(expr.b, tirx.FloatImm) and float(expr.b.value) != 0
    return is_constant and isinstance(expr.a, (tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min))


def _is_old(store: tirx.BufferStore, value: ir.Expr) -> bool:
    """Whether a value is what a store replaces."""
    return (
        isinstance(value, ir.TensorLoad)
        and value.source.same_as(store.buffer)
        and bool(tvm_ffi.structural_equal(value.indices, store.indices))
    )
