"""The innermost loops of a kernel, in cycles of a typical core."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tvm_xengine.cost_models.features.accesses import Access
from tvm_xengine.cost_models.features.expressions import Loop, Ops
from tvm_xengine.cost_models.features.hardware import Hardware
from tvm_xengine.cost_models.features.statements import Statement

_WIDEST_AUTOMATIC_BYTES = 32
"""LLVM makes vectors of this size where loops have none, also where there are wider ones."""

_LATENCY_CYCLES = 4.0
"""Cycles from an addition to the next that reads its sum: 3 to 4 in x86-64 processors since 2015
(Agner Fog's tables)."""

_DIVIDE_CYCLES = 5.0
"""Cycles between two vector divisions, 4 to 8 in the same tables; chosen, not fitted."""

_CALL_CYCLES = 25.0
"""Cycles of a function of the C library such as expf on one number; chosen, not fitted."""

_INTEGER_DIVIDE_CYCLES = 4.0
"""Cycles of a division by a constant, which is a product and shifts; chosen, not fitted."""


@dataclass(frozen=True)
class Body:
    """The statements in one innermost loop, or between loops.

    Attributes
    ----------
    iterations
        How often it runs in one call of the kernel.
    entries
        How often the loop around it begins.
    is_automatic
        Whether LLVM probably makes vectors of it; then the counts are of those.
    arithmetic, loads, stores, divides, calls, integer
        Instructions of one iteration: of floating point (a fused product and sum is one), of
        memory, divisions and roots, function calls, integer divisions and conditions.
    chain_cycles
        Least time of one iteration because each needs the result of the one before.
    cycles
        Of one iteration.
    """

    statements: tuple[Statement, ...]
    iterations: float
    entries: float
    is_automatic: bool
    arithmetic: float
    loads: float
    stores: float
    divides: float
    calls: float
    integer: float
    chain_cycles: float
    cycles: float

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops around it."""
        return self.statements[0].loops if self.statements else ()

    @property
    def total_cycles(self) -> float:
        """Of one call of the kernel."""
        return self.iterations * self.cycles


NO_BODY = Body((), *(0.0, 0.0), False, *([0.0] * 8))
"""What a kernel has that has no body of some rank."""


def bodies_of(statements: Sequence[Statement], hardware: Hardware) -> list[Body]:
    """The innermost loops in the order in which they are met."""
    groups: dict[int, list[Statement]] = {}
    for statement in statements:
        groups.setdefault(id(statement.loops), []).append(statement)
    return [_body(group, hardware) for group in groups.values()]


def _body(statements: Sequence[Statement], hardware: Hardware) -> Body:
    loops = statements[0].loops
    iterations = float(math.prod(loop.extent for loop in loops))
    is_automatic = _is_automatic(statements, hardware)
    arithmetic = divides = calls = integer = stores = 0.0
    for s in statements:
        count = s.weight * _instructions(s.store, is_automatic, hardware)
        arithmetic += count * _arithmetic(s.ops, hardware)
        divides += count * (s.ops["divide"] + s.ops["root"])
        lanes = s.store.lanes if s.store.lanes > 1 else 1
        calls += s.weight * s.ops["call"] * lanes
        integer += s.weight * (s.ops["integer_divide"] + s.ops["branch"] + s.guards)
        stores += s.weight * _memory_instructions(s.store, is_automatic, hardware)
    loads = sum(
        weight * _memory_instructions(load, is_automatic, hardware)
        for load, weight in _distinct_loads(statements)
    )
    chain_cycles = 0.0 if is_automatic else _chain_cycles(statements)
    cycles = max(
        arithmetic / 2,
        loads / 2,
        stores,
        (arithmetic + loads + stores + integer) / 4,
        chain_cycles,
    )
    cycles += divides * _DIVIDE_CYCLES + calls * _CALL_CYCLES + integer * _INTEGER_DIVIDE_CYCLES
    return Body(
        statements=tuple(statements),
        iterations=iterations,
        entries=iterations / loops[-1].extent if loops else 1.0,
        is_automatic=is_automatic,
        arithmetic=arithmetic,
        loads=loads,
        stores=stores,
        divides=divides,
        calls=calls,
        integer=integer,
        chain_cycles=chain_cycles,
        cycles=cycles,
    )


def _is_automatic(statements: Sequence[Statement], hardware: Hardware) -> bool:
    """Whether the innermost loop has only accesses and operations that LLVM makes vectors of."""
    loops = statements[0].loops
    if not loops or hardware.vector_bytes <= 4:
        return False
    element_bytes = max(s.store.element_bytes for s in statements)
    if loops[-1].extent < min(hardware.vector_bytes, _WIDEST_AUTOMATIC_BYTES) / element_bytes:
        return False
    return all(_suits_vectors(s) for s in statements)


def _suits_vectors(statement: Statement) -> bool:
    store = statement.store
    if store.lanes > 1 or store.inner_stride_bytes != store.element_bytes:
        return False
    ops = statement.ops
    if statement.guards or ops["call"] or ops["gather"] or ops["integer_divide"]:
        return False
    return all(load.inner_stride_bytes in (0, load.element_bytes) for load in statement.loads)


def _instructions(access: Access, is_automatic: bool, hardware: Hardware) -> float:
    """Instructions for what is done once in the program, per iteration."""
    if access.lanes > 1:
        return max(1.0, access.lanes * access.element_bytes / hardware.vector_bytes)
    if is_automatic:
        width = min(hardware.vector_bytes, _WIDEST_AUTOMATIC_BYTES)
        return min(1.0, access.element_bytes / width)
    return 1.0


def _memory_instructions(access: Access, is_automatic: bool, hardware: Hardware) -> float:
    if not access.inner_stride_bytes and len(access.strides_bytes):
        return 0.0  # kept in a register
    if access.lanes > 1 and access.lane_stride > 1:
        return float(access.lanes)
    return _instructions(access, is_automatic, hardware)


def _arithmetic(ops: Ops, hardware: Hardware) -> float:
    fused = min(ops["add"], ops["multiply"]) if hardware.has_fma else 0
    return ops["add"] + ops["multiply"] - fused + ops["compare"] + ops["select"] + ops["cast"]


def _distinct_loads(statements: Iterable[Statement]) -> list[tuple[Access, float]]:
    found: dict[tuple[object, ...], tuple[Access, float]] = {}
    for statement in statements:
        for load in statement.loads:
            key = (load.tensor.number, load.start_bytes, load.strides_bytes, load.lanes)
            found[key] = (load, statement.weight)
    return list(found.values())


def _chain_cycles(statements: Sequence[Statement]) -> float:
    """Sums into one address wait for each other."""
    lengths: Counter[tuple[object, ...]] = Counter()
    for s in statements:
        store = s.store
        if store.inner_stride_bytes:
            continue
        for load in s.loads:
            if load.tensor.number == store.tensor.number and (
                load.start_bytes == store.start_bytes and load.strides_bytes == store.strides_bytes
            ):
                lengths[store.tensor.number, store.start_bytes] += 1
                break
    return _LATENCY_CYCLES * max(lengths.values(), default=0)
