"""The operations of a kernel, counted in its loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_xengine.kernels.device_kernel import DeviceKernel

_FLOAT_CALL = 20.0
"""Operations that a library function such as exp counts for."""

_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min")


@dataclass(frozen=True)
class OperationCount:
    """Operations that one run of a kernel executes.

    Attributes
    ----------
    float_ops
        Floating-point additions, multiplications, comparisons and the like.
    accesses
        Elements loaded or stored.
    loop_steps
        Iterations of loops, each a comparison and an addition.
    """

    float_ops: float = 0.0
    accesses: float = 0.0
    loop_steps: float = 0.0

    def __add__(self, other: OperationCount) -> OperationCount:
        return OperationCount(
            self.float_ops + other.float_ops,
            self.accesses + other.accesses,
            self.loop_steps + other.loop_steps,
        )

    def times(self, count: float) -> OperationCount:
        """The operations of `count` runs."""
        return OperationCount(
            self.float_ops * count, self.accesses * count, self.loop_steps * count
        )


def count_operations(kernel: DeviceKernel) -> OperationCount:
    """The operations of one run, both branches of every condition taken."""
    return sum(
        (_own(stmt).times(runs) for stmt, runs in _runs(kernel.func.body, 1.0)), OperationCount()
    )


def runs_of_stores(kernel: DeviceKernel) -> Iterator[tuple[tirx.Stmt, float]]:
    """The stores and bound values of a kernel, each with how often one run executes it."""
    runs = _runs(kernel.func.body, 1.0)
    yield from ((stmt, times) for stmt, times in runs if not isinstance(stmt, tirx.For))


def _runs(stmt: tirx.Stmt, times: float) -> Iterator[tuple[tirx.Stmt, float]]:
    """Those and the loops, each of which counts once a step."""
    match stmt:
        case tirx.SeqStmt():
            for child in stmt.seq:
                yield from _runs(child, times)
        case tirx.For():
            # An extent that is no number ends a partial block; a full one is the usual case.
            steps = float(int(stmt.extent)) if isinstance(stmt.extent, tirx.IntImm) else 1.0
            yield stmt, times * steps
            yield from _runs(stmt.body, times * steps)
        case tirx.IfThenElse():
            yield from _runs(stmt.then_case, times)
            if stmt.else_case is not None:
                yield from _runs(stmt.else_case, times)
        case tirx.AttrStmt() if stmt.attr_key == "thread_extent":
            yield from _runs(stmt.body, times * float(int(stmt.value)))
        case tirx.AttrStmt() | tirx.While():
            yield from _runs(stmt.body, times)
        case tirx.BufferStore() | tirx.Bind():
            yield stmt, times
        case _:
            pass


def _own(stmt: tirx.Stmt) -> OperationCount:
    """The operations of a statement itself."""
    match stmt:
        case tirx.For():
            return OperationCount(loop_steps=1.0)
        case tirx.BufferStore():
            return _in(stmt.value) + OperationCount(accesses=1.0)
        case _:
            return _in(stmt.value)


def _in(expr: ir.Expr) -> OperationCount:
    """The operations of one evaluation; index arithmetic is not counted."""
    kind = type(expr).__name__
    if kind == "TensorLoad":
        return OperationCount(accesses=1.0)
    is_float = "float" in str(getattr(expr.ty, "dtype", ""))  # an address has none
    if kind == "Call":
        own = _FLOAT_CALL if is_float and len(expr.args) < 3 else 0.0
        inner = sum((_in(arg) for arg in expr.args), OperationCount())
        return inner + OperationCount(float_ops=own)
    own = 1.0 if is_float and kind in _ARITHMETIC else 0.0
    parts = [getattr(expr, name, None) for name in ("a", "b", "value", "condition", "true_value")]
    parts += [getattr(expr, name, None) for name in ("false_value", "body")]
    inner = sum((_in(part) for part in parts if isinstance(part, ir.Expr)), OperationCount())
    return inner + OperationCount(float_ops=own)
