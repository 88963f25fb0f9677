"""Read off a lowered kernel how often each of its stores runs, and what it touches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_xengine.cost_models.expressions import (
    Loop,
    Scope,
    identity,
    largest_value,
    places_of,
    visit_value,
)

_SAMPLED_STORES = 64
"""Of a longer run of stores (an unrolled loop) so many stand for all of them."""


@dataclass(frozen=True)
class Tensor:
    """What an access goes to; equal for equal memory, unless the kernel casts pointers."""

    number: int
    size_bytes: int


@dataclass(frozen=True)
class Access:
    """A load or store inside loops.

    Attributes
    ----------
    start_bytes
        Where it begins in the tensor in the first iteration of all loops.
    strides_bytes
        For each loop, outermost first, how far the address moves in one iteration.
    spans_bytes
        For each loop, how far it has moved in the last iteration.
    lanes
        Elements that are touched at once, and `lane_stride` elements lie between two of them.
    """

    tensor: Tensor
    element_bytes: int
    lanes: int
    lane_stride: int
    start_bytes: int
    strides_bytes: tuple[int, ...]
    spans_bytes: tuple[int, ...]

    @property
    def bytes_at_once(self) -> int:
        """Bytes that one execution touches."""
        return self.element_bytes * (self.lanes if self.lane_stride else 1)

    @property
    def inner_stride_bytes(self) -> int:
        """How far the address moves in one iteration of the innermost loop."""
        return self.strides_bytes[-1] if self.strides_bytes else 0


@dataclass(frozen=True)
class Statement:
    """A store with everything that is computed for it.

    Attributes
    ----------
    executions
        How often it runs in one call of the kernel, once for a whole vector.
    ops
        Number of operations of each class in one execution.
    guards
        Number of conditions around it.
    """

    loops: tuple[Loop, ...]
    executions: float
    store: Access
    loads: tuple[Access, ...]
    ops: Counter[str]
    guards: int

    @property
    def weight(self) -> float:
        """How many stores of an unrolled run it stands for."""
        return self.executions / math.prod(loop.extent for loop in self.loops)


def statements_of(kernel: tirx.PrimFunc) -> list[Statement]:
    """The stores of a lowered kernel, in the order of the program.

    Long unrolled runs are represented by some of their stores, whose `executions` count for all.
    Loops whose extent depends on others count with their largest extent, and both branches of a
    condition count in full. A value with a name counts in the first statement that reads it where
    it is bound; deeper loops find it ready.
    """
    return list(_Walk().walk(kernel.body, Scope()))


class _Walk:
    """Remembers which variable is which tensor."""

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[Tensor, int, int]] = {}

    def walk(self, stmt: tirx.Stmt, scope: Scope) -> Iterator[Statement]:
        """The stores of a statement."""
        match stmt:
            case tirx.SeqStmt():
                yield from self._sequence(list(stmt.seq), scope)
            case tirx.For():
                is_parallel = int(stmt.kind) == int(tirx.ForKind.PARALLEL)
                extent = largest_value(stmt.extent)
                yield from self.walk(stmt.body, scope.inside(stmt.loop_var, extent, is_parallel))
            case tirx.IfThenElse():
                yield from self.walk(stmt.then_case, scope.guarded())
                if stmt.else_case is not None:
                    yield from self.walk(stmt.else_case, scope.guarded())
            case tirx.AttrStmt() if stmt.attr_key == "thread_extent":
                extent = largest_value(stmt.value)
                yield from self.walk(stmt.body, scope.inside(stmt.node.var, extent, True))
            case tirx.AttrStmt() | tirx.While():
                yield from self.walk(stmt.body, scope)
            case tirx.Bind():
                scope.bound[identity(stmt.var)] = stmt.value
            case tirx.BufferStore():
                yield self._statement(stmt, scope)

    def _sequence(self, children: Sequence[tirx.Stmt], scope: Scope) -> Iterator[Statement]:
        stores = sum(isinstance(child, tirx.BufferStore) for child in children)
        step = max(1, math.ceil(stores / _SAMPLED_STORES))
        standing = scope.weighted(stores / math.ceil(stores / step)) if step > 1 else scope
        place = 0
        for child in children:
            if not isinstance(child, tirx.BufferStore):
                yield from self.walk(child, scope)
                continue
            if place % step == 0:
                yield self._statement(child, standing)
            place += 1

    def _statement(self, store: tirx.BufferStore, scope: Scope) -> Statement:
        ops: Counter[str] = Counter()
        loads: list[Access] = []

        def on_load(load: ir.TensorLoad) -> None:
            loads.append(self._access(load.source, load.indices, scope, ops))

        visit_value(store.value, scope, ops, on_load)
        executions = scope.weight * math.prod(loop.extent for loop in scope.loops)
        target = self._access(store.buffer, store.indices, scope, ops)
        return Statement(scope.loops, executions, target, tuple(loads), ops, scope.guards)

    def _access(
        self, buffer: ir.Var, indices: Sequence[ir.Expr], scope: Scope, ops: Counter[str]
    ) -> Access:
        tensor, element_bytes, own_lanes = self._tensor(buffer)
        index, lanes, lane_stride = indices[-1], own_lanes, 1
        if isinstance(index, tirx.Ramp):
            lanes *= int(index.lanes)
            lane_stride = int(index.stride) if isinstance(index.stride, tirx.IntImm) else 2
            index = index.base
        elif isinstance(index, tirx.Broadcast):
            lanes *= int(index.lanes)
            lane_stride = 0
            index = index.value
        place = places_of(index, scope, ops)
        if isinstance(place, int):
            place = [place]
        unit_bytes = element_bytes * own_lanes
        strides, spans = [], []
        for depth, loop in enumerate(scope.loops):
            at = 1 + 2 * depth
            once, last = (place[at], place[at + 1]) if at < len(place) else (place[0], place[0])
            span = last - place[0]
            # A quotient moves only now and then.
            stride = once - place[0] or math.ceil(span / max(1, loop.extent - 1))
            strides.append(stride * unit_bytes)
            spans.append(span * unit_bytes)
        return Access(
            tensor,
            element_bytes,
            lanes,
            lane_stride,
            place[0] * unit_bytes,
            tuple(strides),
            tuple(spans),
        )

    def _tensor(self, buffer: ir.Var) -> tuple[Tensor, int, int]:
        """The tensor with its bytes and lanes of an element."""
        name = identity(buffer)
        if name not in self._tensors:
            element_bytes, lanes = _element(str(buffer.ty.dtype.dtype))
            extents = [int(e) if isinstance(e, tirx.IntImm) else 1 for e in buffer.ty.shape]
            size_bytes = math.prod(extents) * element_bytes * lanes
            tensor = Tensor(len(self._tensors), size_bytes)
            self._tensors[name] = (tensor, element_bytes, lanes)
        return self._tensors[name]


def _element(dtype: str) -> tuple[int, int]:
    """Bytes of a scalar and number of lanes of an element type such as ``float32x16``."""
    scalar, _, lanes = dtype.partition("x")
    bits = int("".join(c for c in scalar if c.isdigit()) or 8)
    if scalar.startswith("float8"):
        bits = 8
    return max(1, bits // 8), int(lanes or 1)
