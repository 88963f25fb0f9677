"""Instructions of a training step on a small processor, estimated from the loops of its kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod

import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.aot.c_library import BINARY, OF_UNIT, UNARY
from tvm_xengine.aot.plan.static_cost import ACCESS_BYTES
from tvm_xengine.aot.plan.tiles import TiledKernel
from tvm_xengine.aot.targets import EmbeddedTarget
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.lower.transcendentals.expand import written_out
from tvm_xengine.kernels.schedules.products.dots import DOT_4, DOT_RUNS
from tvm_xengine.scheduling.schedule import Compute, Schedule, Transfer

_LOOP_STEP = 3.0
"""An addition, a comparison and a jump."""
_CHOICE = 2.0
"""A comparison, and a jump or a move by its result."""
_CALL = 2.0
"""A jump to a function, and one back."""
_LIBRARY_CALL = 150.0
"""What a function of the C library such as `logf` takes with a floating-point unit, in round numbers."""
_SOFTWARE_FLOAT = 36.0
"""What an addition or multiplication of floats takes in software, as a mean of both on a Cortex-M3."""
_DOT_PRODUCT = 4.0
"""What `DOT_4` takes beside its loads: two multiplications and two widenings."""
_RUN_BYTES = 16
"""Of a run, for which `DOT_RUNS` loads and adds once for each sum."""
_LANES = 4
"""Elements of a vector of Helium, in which whole loops are written."""

_LIBRARY = {*UNARY, *BINARY} - OF_UNIT
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div)
_COMPARISONS = (
    *(tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE),
    *(tirx.Select, tirx.Max, tirx.Min),
)


def step_instructions(
    lowered: LoweredStep, schedule: Schedule, target: EmbeddedTarget, *, has_dma: bool = False
) -> float:
    """Instructions of the processor for all kernels and copies of a schedule.

    Parameters
    ----------
    has_dma
        Whether something else than the processor copies between regions.
    """
    known: dict[str, float] = {}
    total = 0.0
    for step in schedule.steps:
        match step:
            case Compute(op, device, variant):
                kernel = lowered.kernel(op, device, variant)
                if kernel.symbol not in known:
                    known[kernel.symbol] = kernel_instructions(kernel, target)
                total += known[kernel.symbol]
            case Transfer(tensor) if not has_dma:
                total += copy_instructions(lowered.extraction.graph.tensor[tensor].size_bytes)
            case _:
                pass
    return total


def copy_instructions(size_bytes: int) -> float:
    """A word is loaded and stored."""
    return 2.0 * size_bytes / ACCESS_BYTES


def kernel_instructions(kernel: DeviceKernel, target: EmbeddedTarget) -> float:
    """Of one run; both branches of every condition count.

    What a loop does not change is computed in front of it, and an array of which only known elements are
    used is kept in registers, as compilers do.
    """
    if isinstance(kernel, TiledKernel):
        moved = [
            cut for cut in kernel.cuts if cut and not cut.region and cut.offset_bytes is not None
        ]
        copied = sum(copy_instructions(cut.tile_bytes) for cut in moved)
        return kernel.tiles * (kernel_instructions(kernel.tile, target) + copied)
    counted = _Count()
    counted.statement(kernel.func.body, ())
    per_float = 1.0 if target.has_fpu else _SOFTWARE_FLOAT
    in_vectors = per_float * counted.floats + counted.accesses + _LOOP_STEP * counted.loop_steps
    others = (
        _CHOICE * counted.choices
        + _CALL * counted.calls
        + per_float * _LIBRARY_CALL * counted.library_calls
    )
    lanes = _LANES if target.has_helium else 1
    return (in_vectors + counted.integers) / lanes + others + counted.in_runs


Loops = tuple[tuple[ir.Var, float], ...]
"""The loops around a statement, outermost first: variable and steps."""


class _Count:
    """What the statements of a kernel execute."""

    def __init__(self) -> None:
        self.floats = self.accesses = self.loop_steps = self.choices = self.library_calls = 0.0
        self.integers = self.in_runs = self.calls = 0.0
        self._changes_with: dict[ir.Var, frozenset[ir.Var]] = {}
        self._arrays: set[ir.Var] = set()
        self._known: set[int] = set()

    def statement(self, stmt: tirx.Stmt, loops: Loops) -> None:
        """Count a statement in some loops."""
        match stmt:
            case tirx.SeqStmt():
                for child in stmt.seq:
                    self.statement(child, loops)
            case tirx.For():
                # An extent that is no number ends a partial block; a full one is the usual case.
                steps = float(int(stmt.extent)) if isinstance(stmt.extent, tirx.IntImm) else 1.0
                self._changes_with[stmt.loop_var] = frozenset([stmt.loop_var])
                self.loop_steps += _runs(loops) * (1.0 + steps * (steps > 1))
                self._known = set()
                self.statement(stmt.body, (*loops, (stmt.loop_var, steps)))
                self._known = set()
            case tirx.IfThenElse():
                self.choices += _runs(loops)
                self._expression(stmt.condition, loops)
                self.statement(stmt.then_case, loops)
                if stmt.else_case is not None:
                    self.statement(stmt.else_case, loops)
            case tirx.AttrStmt() | tirx.While():
                self.statement(stmt.body, loops)
            case tirx.AllocBuffer():
                self._arrays.add(stmt.buffer)
            case tirx.Bind():
                self._changes_with[stmt.var] = self._changing(stmt.value)
                self._expression(stmt.value, loops)
            case tirx.Evaluate(value=ir.Call() as call) if call.op.name == "tirx.call_extern":
                rows = int(str(call.args[0].value).removeprefix(DOT_RUNS))
                steps = -(-int(call.args[-2]) // _RUN_BYTES)
                self.in_runs += _runs(loops) * 2 * steps * (1 + rows)
            case tirx.BufferStore():
                self._expression(stmt.value, loops)
                at = self._changing(*stmt.indices)
                if at or stmt.buffer not in self._arrays:
                    self.accesses += _runs(loops, at)
            case _:
                pass

    def _expression(self, expr: ir.Expr, loops: Loops) -> None:
        """Count an expression that was not computed before in the same loop."""
        if isinstance(expr, (ir.Var, tirx.IntImm, tirx.FloatImm)):
            return
        key = tvm_ffi.structural_hash(expr)
        if key in self._known:
            return
        self._known.add(key)
        if isinstance(expr, tirx.Let):
            self._expression(expr.value, loops)
            self._changes_with[expr.var] = self._changing(expr.value)
            self._expression(expr.body, loops)
            return
        if isinstance(expr, ir.TensorLoad):
            at = self._changing(*expr.indices)
            if at or expr.source not in self._arrays:
                self.accesses += _runs(loops, at)
            return
        runs = _runs(loops) if self._reads_registers(expr) else _runs(loops, self._changing(expr))
        if isinstance(expr, _COMPARISONS):
            self.choices += runs
        elif isinstance(expr, _ARITHMETIC):
            self.floats += runs * ("float" in str(expr.ty.dtype))
            # Multiplied and added at once; products of indices are no sums.
            self.integers += runs * (isinstance(expr, tirx.Mul) and isinstance(expr.a, tirx.Cast))
        elif isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op):
            name = expr.op.name.rpartition(".")[2]
            self.choices += runs * (name == "if_then_else")
            self.library_calls += runs * (name in _LIBRARY)
            if name == "call_pure_extern":
                self._called(str(expr.args[0].value), expr.args[-1], runs, loops)
        for part in _parts(expr):
            self._expression(part, loops)

    def _called(self, function: str, given: ir.Expr, runs: float, loops: Loops) -> None:
        """Count what a function executes."""
        if function == DOT_4:
            self.integers += runs * _DOT_PRODUCT
        elif written := written_out(function):
            x, body = written
            self.calls += runs
            self._changes_with[x] = self._changing(given)
            self._expression(body, loops)

    def _changing(self, *exprs: ir.Expr) -> frozenset[ir.Var]:
        """The loops with which expressions change."""
        found: set[ir.Var] = set()
        for expr in exprs:
            tvm_ffi.structural_walk(
                expr, (ir.Var, lambda var: found.update(self._changes_with.get(var, ())))
            )
        return frozenset(found)

    def _reads_registers(self, expr: ir.Expr) -> bool:
        """Whether a sum that is kept in a register, which each step changes, is among its terms."""
        loads: list[ir.TensorLoad] = []
        tvm_ffi.structural_walk(expr, (ir.TensorLoad, loads.append))
        return any(
            load.source in self._arrays and not self._changing(*load.indices) for load in loads
        )


def _parts(expr: ir.Expr) -> Iterable[ir.Expr]:
    if isinstance(expr, ir.Call):
        parts: Iterable[object] = expr.args
    else:
        names = ("a", "b", "value", "condition", "true_value", "false_value")
        parts = (getattr(expr, name, None) for name in names)
    return (part for part in parts if isinstance(part, ir.Expr))


def _runs(loops: Loops, changing: Collection[ir.Var] | None = None) -> float:
    """How often it runs in all of these loops, or in those up to the last one with which it changes."""
    last = [k for k, (var, _) in enumerate(loops) if changing is None or var in changing]
    return prod(steps for _, steps in loops[: last[-1] + 1]) if last else 1.0
