"""The stores of a lowered kernel: how often each runs, and the memory it accesses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tvm import ir, tirx

from tvm_xengine.cost_models.features.accesses import Access, Tensor
from tvm_xengine.cost_models.features.expressions import (
    Loop,
    Ops,
    Places,
    Scope,
    largest_value,
    no_ops,
    places_of,
    visit_value,
)
from tvm_xengine.relax_ir.identity import identity

_SAMPLED_STORES = 64
"""Of a longer run of stores (an unrolled loop) so many stand for all of them."""


class Statement(NamedTuple):
    """A store with everything that is computed for it.

    Attributes
    ----------
    executions
        How often it runs in one call of the kernel, once for a whole vector.
    weight
        How many stores of an unrolled run it stands for.
    ops
        Number of operations of each class in one execution.
    guards
        Number of conditions around it.
    """

    loops: tuple[Loop, ...]
    executions: float
    weight: float
    store: Access
    loads: tuple[Access, ...]
    ops: Ops
    guards: int


def statements_of(kernel: tirx.PrimFunc) -> list[Statement]:
    """The stores of a lowered kernel, in the order of the program.

    Long unrolled runs are represented by some of their stores, whose `executions` count for all.
    Loops whose extent depends on others count with their largest extent, and both branches of a
    condition count in full. A value with a name counts in the first statement that reads it where
    it is bound; deeper loops find it ready.
    """
    walk = _Walk()
    walk.visit(kernel.body, Scope())
    return walk.statements


class _Walk:
    """Remembers which variable is which tensor, and the statements that it has met."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self._tensors: dict[int, tuple[Tensor, int, int]] = {}

    def visit(self, stmt: tirx.Stmt, scope: Scope) -> None:
        """Add the stores of a statement."""
        kind = type(stmt)
        if kind is tirx.BufferStore:
            self._add(stmt, scope)
        elif kind is tirx.Bind:
            scope.bound[identity(stmt.var)] = stmt.value
        elif kind is tirx.SeqStmt:
            self._sequence(list(stmt.seq), scope)
        elif kind is tirx.For:
            is_parallel = int(stmt.kind) == int(tirx.ForKind.PARALLEL)
            extent = largest_value(stmt.extent)
            self.visit(stmt.body, scope.inside(stmt.loop_var, extent, is_parallel))
        elif kind is tirx.IfThenElse:
            self.visit(stmt.then_case, scope.guarded())
            if stmt.else_case is not None:
                self.visit(stmt.else_case, scope.guarded())
        elif kind is tirx.AttrStmt and stmt.attr_key == "thread_extent":
            extent = largest_value(stmt.value)
            self.visit(stmt.body, scope.inside(stmt.node.var, extent, True))
        elif kind in (tirx.AttrStmt, tirx.While):
            self.visit(stmt.body, scope)

    def _sequence(self, children: Sequence[tirx.Stmt], scope: Scope) -> None:
        stores = sum(type(child) is tirx.BufferStore for child in children)
        step = max(1, math.ceil(stores / _SAMPLED_STORES))
        standing = scope.weighted(stores / math.ceil(stores / step)) if step > 1 else scope
        place = 0
        for child in children:
            if type(child) is not tirx.BufferStore:
                self.visit(child, scope)
                continue
            if place % step == 0:
                self._add(child, standing)
            place += 1

    def _add(self, store: tirx.BufferStore, scope: Scope) -> None:
        ops = no_ops()
        loads: list[Access] = []

        def on_load(load: ir.TensorLoad) -> None:
            loads.append(self._access(load.source, load.indices, scope, ops))

        visit_value(store.value, scope, ops, on_load)
        target = self._access(store.buffer, store.indices, scope, ops)
        executions = scope.weight * scope.iterations
        self.statements.append(
            Statement(
                scope.loops, executions, scope.weight, target, tuple(loads), ops, scope.guards
            )
        )

    def _access(self, buffer: ir.Var, indices: Sequence[ir.Expr], scope: Scope, ops: Ops) -> Access:
        tensor, element_bytes, own_lanes = self._tensor(buffer)
        index, lanes, lane_stride = indices[-1], own_lanes, 1
        kind = type(index)
        if kind is tirx.Ramp:
            lanes *= int(index.lanes)
            lane_stride = int(index.stride) if isinstance(index.stride, tirx.IntImm) else 2
            index = index.base
        elif kind is tirx.Broadcast:
            lanes *= int(index.lanes)
            lane_stride = 0
            index = index.value
        place = places_of(index, scope, ops)
        if isinstance(place, int):
            place = [place]
        # Unrolled statements touch the same places again and again.
        key = (tensor.number, element_bytes, lanes, lane_stride, *place)
        access = scope.accesses.get(key)
        if access is None:
            strides_bytes, spans_bytes = _moves_bytes(place, scope.loops, element_bytes * own_lanes)
            access = scope.accesses[key] = Access(
                tensor,
                element_bytes,
                lanes,
                lane_stride,
                place[0] * element_bytes * own_lanes,
                strides_bytes,
                spans_bytes,
            )
        return access

    def _tensor(self, buffer: ir.Var) -> tuple[Tensor, int, int]:
        """The tensor with its bytes and lanes of an element."""
        name = identity(buffer)
        found = self._tensors.get(name)
        if found is None:
            element_bytes, lanes = _element(str(buffer.ty.dtype.dtype))
            extents = [int(e) if isinstance(e, tirx.IntImm) else 1 for e in buffer.ty.shape]
            size_bytes = math.prod(extents) * element_bytes * lanes
            tensor = Tensor(len(self._tensors), size_bytes)
            found = self._tensors[name] = (tensor, element_bytes, lanes)
        return found


def _moves_bytes(
    place: Places, loops: Sequence[Loop], unit_bytes: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each loop how far an index moves in one iteration, and until the last one."""
    start = place[0]
    strides, spans = [0] * len(loops), [0] * len(loops)
    for depth in range(min(len(loops), len(place) // 2)):
        span = place[2 + 2 * depth] - start
        # A quotient moves only now and then.
        stride = place[1 + 2 * depth] - start or math.ceil(span / max(1, loops[depth].extent - 1))
        strides[depth] = stride * unit_bytes
        spans[depth] = span * unit_bytes
    return tuple(strides), tuple(spans)


def _element(dtype: str) -> tuple[int, int]:
    """Bytes of a scalar and number of lanes of an element type such as ``float32x16``."""
    scalar, _, lanes = dtype.partition("x")
    bits = int("".join(c for c in scalar if c.isdigit()) or 8)
    if scalar.startswith("float8"):
        bits = 8
    return max(1, bits // 8), int(lanes or 1)
