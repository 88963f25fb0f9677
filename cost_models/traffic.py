"""How many bytes a statement moves between cache levels, by the sizes of its loops."""

from __future__ import annotations

import math

from tvm_xengine.cost_models.statements import Access, Statement

_LINE_BYTES = 64


def footprints_bytes(statement: Statement) -> list[float]:
    """Bytes that the innermost d loops touch, for d = 0 ... all loops."""
    accesses = (statement.store, *statement.loads)
    depths = range(len(statement.loops) + 1)
    return [
        sum(_touched_bytes(access, statement, depth) for access in accesses) for depth in depths
    ]


def missed_bytes(statement: Statement, footprints: list[float], cache_bytes: int) -> float:
    """Bytes that a cache of that size has to fetch.

    The loops that together fit are filled once for every iteration of the loops around them; the
    reuse-distance argument of Wolf and Lam (PLDI 1991, section 3), one statement at a time.
    """
    inner = 0
    while inner + 1 < len(footprints) and footprints[inner + 1] <= cache_bytes:
        inner += 1
    outside = statement.loops[: len(statement.loops) - inner]
    scale = statement.executions / max(1, math.prod(loop.extent for loop in statement.loops))
    return scale * footprints[inner] * math.prod(loop.extent for loop in outside)


def _touched_bytes(access: Access, statement: Statement, depth: int) -> float:
    first = len(statement.loops) - depth
    count = 1.0
    smallest = math.inf
    for loop, stride in zip(statement.loops[first:], access.strides_bytes[first:], strict=True):
        if stride:
            count *= loop.extent
            smallest = min(smallest, abs(stride))
    at_once = access.bytes_at_once
    if math.isinf(smallest):
        return float(at_once)
    # Neighbours that lie closer than a line share it.
    return count * max(at_once, min(smallest, _LINE_BYTES))
