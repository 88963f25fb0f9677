"""How many bytes a kernel moves between cache levels, by the sizes of its loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tvm_xengine.cost_models.statements import Access, Statement

_LINE_BYTES = 64


@dataclass
class _Pattern:
    """Accesses to one tensor that move alike, from different starts."""

    sample: Access
    extents: tuple[int, ...]
    starts_bytes: set[int] = field(default_factory=set)

    def touched(self, depth: int) -> tuple[float, float, int, int]:
        """Of one execution of what is inside `depth` loops: bytes, the bytes that a cache needs to
        hold them, and the range they lie in."""
        access = self.sample
        count = 1.0
        smallest = 0
        low = high = 0
        for at in range(depth, len(self.extents)):
            stride = access.strides_bytes[at]
            if not stride:
                continue
            span = access.spans_bytes[at] or stride
            low, high = low + min(0, span), high + max(0, span)
            count *= self.extents[at]
            smallest = min(smallest or abs(stride), abs(stride))
        at_once = access.bytes_at_once
        if access.lane_stride > 1:
            high += access.element_bytes * (access.lanes - 1) * access.lane_stride
        # Neighbours that lie closer than a line share it.
        each = max(at_once, min(smallest, _LINE_BYTES))
        low, high = low + min(self.starts_bytes), high + max(self.starts_bytes) + at_once
        count *= len(self.starts_bytes)
        # Jumps by a power of two use only some of the sets of a cache.
        held = max(each, smallest & -smallest) if smallest >= _LINE_BYTES else each
        return count * each, count * held, low, high


@dataclass(frozen=True)
class Footprint:
    """Different bytes that are touched, and the size of a cache that holds them.

    They differ where addresses jump by powers of two.
    """

    touched_bytes: float
    held_bytes: float


def footprints(statements: Sequence[Statement], depths: Iterable[int]) -> list[Footprint]:
    """What one execution of what is inside the first `depth` loops touches."""
    patterns = _patterns(statements)
    return [_union(patterns, depth) for depth in depths]


def missed_bytes(statements: Sequence[Statement], caches_bytes: Sequence[int]) -> list[float]:
    """Bytes that caches of these sizes fetch in one call of a kernel that is called repeatedly.

    Iterations of a loop share what they touch as far as one of them fits into the cache, and the
    parts of a sequence as far as they fit together; the reuse-distance argument of Wolf and Lam
    (PLDI 1991, section 3), applied to the whole tree of loops.
    """
    patterns = _patterns(statements)
    total = _union(patterns, 0)
    found = _missed(statements, patterns, total, 0, caches_bytes)
    held = total.held_bytes
    # What fits as a whole is still there from the last call.
    return [
        0.0 if held <= size else missed for missed, size in zip(found, caches_bytes, strict=True)
    ]


def _missed(
    statements: Sequence[Statement],
    patterns: Sequence[_Pattern],
    whole: Footprint,
    depth: int,
    caches_bytes: Sequence[int],
) -> list[float]:
    """For one execution of the sequence inside `depth` loops, which touches `whole`."""
    if whole.held_bytes <= min(caches_bytes):
        return [whole.touched_bytes] * len(caches_bytes)
    result = [0.0] * len(caches_bytes)
    for part in _parts(statements, depth):
        own = patterns if len(part) == len(statements) else _patterns(part)
        every = whole if own is patterns else _union(own, depth)
        missed = [every.touched_bytes] * len(caches_bytes)
        if depth < len(part[0].loops):
            once = _union(own, depth + 1)
            inside = _missed(part, own, once, depth + 1, caches_bytes)
            extent = part[0].loops[depth].extent
            missed = [
                every.touched_bytes
                if once.held_bytes <= size
                else max(every.touched_bytes, extent * each)
                for size, each in zip(caches_bytes, inside, strict=True)
            ]
        result = [a + b for a, b in zip(result, missed, strict=True)]
    return [
        whole.touched_bytes if whole.held_bytes <= size else missed
        for missed, size in zip(result, caches_bytes, strict=True)
    ]


def _parts(statements: Sequence[Statement], depth: int) -> Iterable[list[Statement]]:
    """Runs of statements in the same loop at `depth`, or in none."""
    part: list[Statement] = []
    last: object = None
    for statement in statements:
        loop = statement.loops[depth] if depth < len(statement.loops) else None
        if part and loop is not last:
            yield part
            part = []
        part.append(statement)
        last = loop
    if part:
        yield part


def _patterns(statements: Iterable[Statement]) -> list[_Pattern]:
    found: dict[tuple[object, ...], _Pattern] = {}
    for statement in statements:
        extents = tuple(loop.extent for loop in statement.loops)
        for access in (statement.store, *statement.loads):
            key = (access.tensor.number, access.strides_bytes, extents, access.lanes)
            if key not in found:
                found[key] = _Pattern(access, extents)
            found[key].starts_bytes.add(access.start_bytes)
    return list(found.values())


def _union(patterns: Iterable[_Pattern], depth: int) -> Footprint:
    ranges: dict[int, list[float]] = {}
    for pattern in patterns:
        touched, held, low, high = pattern.touched(depth)
        tensor = pattern.sample.tensor
        if tensor.number not in ranges:
            ranges[tensor.number] = [0.0, 0.0, low, high, tensor.size_bytes]
        known = ranges[tensor.number]
        known[0] += touched
        known[1] += held
        known[2], known[3] = min(known[2], low), max(known[3], high)
    return Footprint(
        sum(min(touched, high - low, size) for touched, _, low, high, size in ranges.values()),
        sum(min(held, high - low) for _, held, low, high, _ in ranges.values()),
    )
