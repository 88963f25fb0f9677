"""Recognise blocks that accumulate values into each element of their output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_xengine.kernels.schedules.blocks import Axis, Block, Load

_FOLDS = (tirx.Add, tirx.Max, tirx.Min)


@dataclass(frozen=True)
class Accumulation:
    """``store = fold(store, term)`` at every position, after ``store = start``.

    Attributes
    ----------
    fold
        The associative operation: a sum, a maximum or a minimum.
    index
        The element of `buffer` that is stored to.
    """

    fold: Callable[[ir.Expr, ir.Expr], ir.Expr]
    term: ir.Expr
    start: ir.Expr
    buffer: ir.Var
    index: tuple[ir.Expr, ...]

    @property
    def ignored(self) -> ir.Expr:
        """A term that changes nothing: 0 of a sum, else the start."""
        return tirx.const(0, self.dtype) if self.fold is tirx.Add else self.start

    @property
    def dtype(self) -> str:
        """Element type of the result."""
        return str(self.buffer.ty.dtype.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.buffer.ty.dtype.dtype.itemsize)

    @property
    def branches(self) -> bool:
        """Whether the term reads only under a condition, as where an image is padded."""
        calls: list[str] = []

        def visit(call: ir.Call) -> None:
            if isinstance(call.op, ir.Op):
                calls.append(call.op.name)

        tvm_ffi.structural_walk(self.term, (ir.Call, visit))
        return "prim.if_then_else" in calls

    def is_contiguous_in(self, var: ir.Var) -> bool:
        """Whether neighbouring values of `var` read neighbouring elements."""
        return is_contiguous(self.term, var)


def read_accumulation(block: Block) -> Accumulation | None:
    """Return the accumulation that a block is, None when it is something else."""
    store, init = block.body, block.init
    if not isinstance(store, tirx.BufferStore) or not isinstance(init, tirx.BufferStore):
        return None
    fold = next((fold for fold in _FOLDS if isinstance(store.value, fold)), None)
    if fold is None:
        return None
    for old, term in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
        if (
            isinstance(old, ir.TensorLoad)
            and old.source.same_as(store.buffer)
            and tvm_ffi.structural_equal(old.indices, store.indices)
            and not any(load.buffer.same_as(store.buffer) for load in _loads(term))
        ):
            return Accumulation(fold, term, init.value, store.buffer, tuple(store.indices))
    return None


def is_contiguous(expr: ir.Expr, var: ir.Var) -> bool:
    """Whether neighbouring values of `var` read neighbouring elements everywhere in `expr`."""
    loads = [load for load in _loads(expr) if _mentions_any(load.index, var)]
    return bool(loads) and all(_steps_by_one(load, var) for load in loads)


def shares_a_load(expr: ir.Expr, var: ir.Var) -> bool:
    """Whether some reads depend on `var` and others do not."""
    loads = _loads(expr)
    depending = [load for load in loads if _mentions_any(load.index, var)]
    return 0 < len(depending) < len(loads)


def readable_extent(expr: ir.Expr, axis: Axis, axes: Sequence[Axis]) -> int:
    """How far `axis` could go on before `expr`, contiguous in it, leaves a row of a buffer."""
    analyzer = sym.Analyzer()
    for other in axes:
        analyzer.bind(other.var, ir.Range(0, max(other.extent, 1)))
    spare = [
        int(load.buffer.ty.shape[-1]) - 1 - int(analyzer.const_int_bound(load.index[-1]).max_value)
        for load in _loads(expr)
        if _mentions_any(load.index, axis.var)
    ]
    return axis.extent + min(spare, default=0)


def substitute(expr: ir.Expr, values: Mapping[ir.Var, ir.Expr]) -> ir.Expr:
    """Return an expression or statement with variables replaced."""
    return tvm_ffi.structural_map(expr, (ir.Var, lambda var: values.get(var, var)))


def mentions(expr: ir.Expr, var: ir.Var | None) -> bool:
    """Whether an expression depends on a variable."""
    return any(var is not None and used.same_as(var) for used in tirx.analysis.undefined_vars(expr))


def _loads(expr: ir.Expr) -> list[Load]:
    found: list[Load] = []

    def visit(load: ir.TensorLoad) -> None:
        found.append(Load(load.source, tuple(load.indices)))

    tvm_ffi.structural_walk(expr, (ir.TensorLoad, visit))
    return found


def _mentions_any(index: tuple[ir.Expr, ...], var: ir.Var) -> bool:
    return any(mentions(part, var) for part in index)


def _steps_by_one(load: Load, var: ir.Var) -> bool:
    *outer, last = load.index
    rest = sym.Analyzer().simplify(last - var)
    return not _mentions_any(tuple(outer), var) and not mentions(rest, var)
