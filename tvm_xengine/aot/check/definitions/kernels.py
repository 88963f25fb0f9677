"""Kernels before any schedule: each loop around a block is a dimension of numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_xengine.aot.check.definitions.expressions import (
    Array,
    Expressions,
    Points,
    Run,
    variables,
)
from tvm_xengine.aot.check.definitions.in_turn import in_turn
from tvm_xengine.aot.check.definitions.sums import Fold, fold_of
from tvm_xengine.errors import UnsupportedModuleError

_MOST_KNOWN = 8
"""So many pieces of the loops around a block are remembered; a few are most of what is asked for."""

Definition = Callable[[Sequence[Array]], list[Array]]
"""The outputs of a kernel for its inputs."""


def definition_of(func: tirx.PrimFunc, num_inputs: int, expressions: Expressions) -> Definition:
    """What a kernel in blocks, as `LowerToKernels` leaves it, computes."""
    run, params = _statement(func.body, expressions), list(func.params)
    outputs = [expressions.allocation(param) for param in params[num_inputs:]]

    def evaluate(inputs: Sequence[Array]) -> list[Array]:
        made = [output() for output in outputs]
        with np.errstate(all="ignore"):
            run(Points(dict(zip(params, [*inputs, *made], strict=True))))
        return made

    return evaluate


def _statement(stmt: tirx.Stmt, expressions: Expressions, guarded: bool = False) -> Run:
    match stmt:
        case tirx.SeqStmt():
            parts = [_statement(child, expressions, guarded) for child in stmt.seq]

            def run_all(at: Points) -> None:
                for part in parts:
                    part(at)

            return run_all
        case tirx.For():
            return _loops(stmt, expressions)
        case tirx.While():
            return in_turn(stmt, expressions)
        case s_tir.SBlockRealize():
            return _Block((), stmt, expressions).run
        case tirx.BufferStore():
            return expressions.store(stmt, expressions.of(stmt.value, guarded), guarded)
        case tirx.Bind():
            value = expressions.of(stmt.value, guarded)
            return lambda at: at.values.update({stmt.var: value(at)})
        case tirx.IfThenElse():
            return _branch(stmt, expressions, guarded)
    raise UnsupportedModuleError(f"{type(stmt).__name__} cannot be evaluated: {stmt}")


def _branch(stmt: tirx.IfThenElse, expressions: Expressions, guarded: bool) -> Run:
    condition = expressions.of(stmt.condition, guarded)
    cases = [
        (holds, _statement(case, expressions, guarded=True))
        for holds, case in ((True, stmt.then_case), (False, stmt.else_case))
        if case is not None
    ]

    def run(at: Points) -> None:
        before, found = at.where, condition(at)
        for holds, case in cases:
            here = np.equal(found, holds)
            at.where = here if before is None else here & before
            case(at)
        at.where = before

    return run


def _loops(stmt: tirx.For, expressions: Expressions) -> Run:
    """Loops around one block at once; around anything else one value after the other."""
    loops = [stmt]
    while isinstance(loops[-1].body, tirx.For):
        loops.append(loops[-1].body)
    inner = loops[-1].body
    if isinstance(inner, s_tir.SBlockRealize) and not _has(
        inner.block.body, s_tir.SBlockRealize, tirx.For, tirx.While
    ):
        return _Block(tuple(loops), inner, expressions).run
    if not _has(stmt, s_tir.SBlockRealize):
        return in_turn(stmt, expressions)
    body = _statement(stmt.body, expressions)
    first, count = expressions.of(stmt.min), expressions.of(stmt.extent)

    def run(at: Points) -> None:
        begin = int(first(at))
        for value in range(begin, begin + int(count(at))):
            at.values[stmt.loop_var] = np.asarray(value)
            body(at)

    return run


def _has(stmt: tirx.Stmt, *kinds: type[tirx.Stmt]) -> bool:
    found: list[object] = []
    tvm_ffi.structural_walk(stmt, (kinds, found.append))
    return bool(found)


class _Block:
    """A block at all points of the loops around it.

    Where it computes a sum, a least or a largest value, all at once; else it runs for one value of the loops
    over what is reduced after the other.
    """

    def __init__(
        self, loops: Sequence[tirx.For], realize: s_tir.SBlockRealize, expressions: Expressions
    ) -> None:
        block = realize.block
        if block.match_buffers:
            raise UnsupportedModuleError(f"the block {block.name_hint} renames parts of arrays")
        self._loops = loops
        self._limits = [(expressions.of(loop.min), expressions.of(loop.extent)) for loop in loops]
        needed = {v for loop in loops for v in variables(loop.min) | variables(loop.extent)}
        self._around = [k for k, loop in enumerate(loops) if loop.loop_var in needed]
        self._fixed = None if needed else next(self._ranges_in_turn(Points({})))
        self._allocated = [(b, expressions.allocation(b)) for b in block.alloc_buffers]
        self._bound = [
            (axis.var, value, expressions.of(value))
            for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)
        ]
        reduced = {
            var
            for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)
            if axis.iter_type == tirx.IterVar.CommReduce
            for var in variables(value)
        }
        self._reduced = tuple(k for k, loop in enumerate(loops) if loop.loop_var in reduced)
        inside = {loop.loop_var for loop in loops}
        self._is_alone = all(variables(value) <= inside for value in realize.iter_values)
        self._known: dict[tuple[range, ...], Points] = {}
        always = isinstance(realize.predicate, tirx.IntImm) and bool(realize.predicate)
        self._predicate = None if always else expressions.of(realize.predicate)
        self._init = None if block.init is None else _statement(block.init, expressions)
        domains = {axis.var: axis.dom for axis in block.iter_vars}
        sizes = {
            var: int(domain.extent)
            for var, domain in domains.items()
            if _is_zero(domain.min) and isinstance(domain.extent, tirx.IntImm)
        }
        body = _simplified(block.body, sizes) if sizes else block.body
        self._fold: Fold | None = None
        if self._reduced and always:
            axes = {var: self._loop(value) for var, value, _ in self._bound}
            self._fold = fold_of(body, axes, self._reduced, expressions)
        self._body = _statement(body, expressions)

    def _loop(self, value: ir.Expr) -> frozenset[int]:
        """The loops that a value is made of."""
        inside = variables(value)
        return frozenset(k for k, loop in enumerate(self._loops) if loop.loop_var in inside)

    def run(self, at: Points) -> None:
        at.buffers.update({buffer: allocate() for buffer, allocate in self._allocated})
        for ranges in self._ranges(at):
            self._run(at, ranges)

    def _run(self, at: Points, everything: list[range]) -> None:
        if self._init is not None:
            self._init(self._points(at, self._first(everything)))
        if self._fold is not None:
            for part in self._fold.parts(everything):
                total = self._fold.total(self._points(at, part))
                self._fold.add(self._points(at, self._first(part)), total)
            return
        for point in product(*(everything[k] for k in self._reduced)):
            ranges = list(everything)
            for k, value in zip(self._reduced, point, strict=True):
                ranges[k] = range(value, value + 1)
            self._body(self._points(at, ranges))

    def _ranges(self, at: Points) -> Iterator[list[range]]:
        """The values of all loops; those that others depend on take one after the other."""
        if self._fixed is not None:
            yield self._fixed
            return
        yield from self._ranges_in_turn(at)

    def _ranges_in_turn(self, at: Points) -> Iterator[list[range]]:
        values = dict(at.values)

        def of(k: int) -> range:
            first, count = (int(limit(replace(at, values=values))) for limit in self._limits[k])
            return range(first, first + count)

        for point in product(*(of(k) for k in self._around)):
            alone = {k: range(v, v + 1) for k, v in zip(self._around, point, strict=True)}
            values |= {self._loops[k].loop_var: np.asarray(r.start) for k, r in alone.items()}
            yield [alone.get(k) or of(k) for k in range(len(self._loops))]

    def _first(self, ranges: Sequence[range]) -> list[range]:
        """The same, but of the loops over what is reduced the first value only."""
        return [r[:1] if k in self._reduced else r for k, r in enumerate(ranges)]

    def _points(self, at: Points, ranges: Sequence[range]) -> Points:
        """The points of the loops, whose values are the same in each run but where loops around count."""
        if not self._is_alone:
            return self._with_predicate(self._values(at, ranges))
        key = tuple(ranges)
        known = self._known.get(key) or self._values(Points({}), ranges)
        if len(self._known) < _MOST_KNOWN:
            self._known[key] = known
        values = {**at.values, **known.values}
        points = Points(at.buffers, values, known.loop_of, known.sizes, at.where)
        return self._with_predicate(points)

    def _values(self, at: Points, ranges: Sequence[range]) -> Points:
        count = len(self._loops)
        sizes = tuple(map(len, ranges))
        points = replace(at, values=dict(at.values), loop_of={}, sizes=sizes)
        for k, (loop, values) in enumerate(zip(self._loops, ranges, strict=True)):
            shape = [len(values) if d == k else 1 for d in range(count)]
            points.values[loop.loop_var] = np.arange(values.start, values.stop).reshape(shape)
            if values.start == 0:
                points.loop_of[loop.loop_var] = (k, len(values))
        for var, value, evaluate in self._bound:
            points.values[var] = evaluate(points)
            if value in points.loop_of:
                points.loop_of[var] = points.loop_of[value]
        return points

    def _with_predicate(self, points: Points) -> Points:
        if self._predicate is not None:
            points.where = self._predicate(points)
        return points


def _simplified(stmt: tirx.Stmt, sizes: Mapping[ir.Var, int]) -> tirx.Stmt:
    """The same without variables and quotients of variables that can only be 0.

    A sum over a group of channels does then not seem to depend on the number of the only group. `sizes` has
    how many values variables take that begin at 0.
    """

    def index(var: ir.Var) -> ir.Expr:
        return tirx.const(0, var.ty.dtype) if sizes.get(var) == 1 else var

    def total(expr: tirx.Add) -> ir.Expr:
        return expr.a if _is_zero(expr.b) else expr.b if _is_zero(expr.a) else expr

    def quotient(expr: tirx.FloorDiv) -> ir.Expr:
        is_zero = isinstance(expr.b, tirx.IntImm) and sizes.get(expr.a, np.inf) <= int(expr.b)
        return tirx.const(0, expr.ty.dtype) if is_zero else expr

    rules = [(ir.Var, index), (tirx.Add, total), (tirx.FloorDiv, quotient)]
    return tvm_ffi.structural_map(stmt, rules)


def _is_zero(expr: ir.Expr) -> bool:
    return isinstance(expr, tirx.IntImm) and int(expr) == 0
