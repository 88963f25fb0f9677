"""Bytes that a kernel moves between cache levels, from the sizes of its loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tvm_xengine.cost_models.features.accesses import Access
from tvm_xengine.cost_models.features.expressions import Loop
from tvm_xengine.cost_models.features.statements import Statement

_LINE_BYTES = 64
"""Size of a cache line of x86-64 and of most arm64 processors."""


class _Pattern:
    """Accesses to one tensor that move alike, from different starts.

    Its lists have an entry for each number of loops that are left out, from none to all.
    """

    def __init__(self, sample: Access, extents: Sequence[int]) -> None:
        self.tensor = sample.tensor
        self._at_once = at_once = sample.bytes_at_once
        lanes_high = 0
        if sample.lane_stride > 1:
            lanes_high = sample.element_bytes * (sample.lanes - 1) * sample.lane_stride
        count, smallest, low, high = 1, 0, 0, lanes_high
        self._inside: list[tuple[int, int, int, int]] = []
        for extent, stride, span in zip(
            (0, *reversed(extents)),
            (0, *reversed(sample.strides_bytes)),
            (0, *reversed(sample.spans_bytes)),
            strict=True,
        ):
            if stride:
                low, high = low + min(0, span or stride), high + max(0, span or stride)
                count *= extent
                smallest = min(smallest or abs(stride), abs(stride))
            # Neighbours that lie closer than a line share it.
            each = max(at_once, min(smallest, _LINE_BYTES))
            # Jumps by a power of two use only some of the sets of a cache.
            held = max(each, smallest & -smallest) if smallest >= _LINE_BYTES else each
            self._inside.append((count * each, count * held, low, high))
        self._inside.reverse()

    def touched(self, depth: int, starts: _Starts) -> tuple[int, int, int, int]:
        """Of one execution of what is inside `depth` loops: bytes, the bytes that a cache needs to
        hold them, and the range they lie in."""
        touched, held, low, high = self._inside[min(depth, len(self._inside) - 1)]
        number, first, last = starts
        return number * touched, number * held, low + first, high + last + self._at_once


_Starts = tuple[int, int, int]
"""How many places accesses begin at, and the first and last of them, in bytes."""

_Patterns = Sequence[tuple[_Pattern, _Starts]]


@dataclass(frozen=True)
class Run:
    """Statements that follow each other in the same loops, with the starts of what they touch."""

    loops: tuple[Loop, ...]
    patterns: Mapping[_Pattern, set[int]]


def runs_of(statements: Sequence[Statement]) -> list[Run]:
    """The statements of a kernel, or some of them, in runs of equal loops."""
    known: dict[tuple[object, ...], _Pattern] = {}
    runs: list[Run] = []
    starts: dict[_Pattern, set[int]] = {}
    for statement in statements:
        if not runs or runs[-1].loops is not statement.loops:
            starts = {}
            runs.append(Run(statement.loops, starts))
            extents = tuple(loop.extent for loop in statement.loops)
        for access in (statement.store, *statement.loads):
            key = (access.tensor.number, access.strides_bytes, access.lanes, extents)
            if (pattern := known.get(key)) is None:
                pattern = known[key] = _Pattern(access, extents)
            if pattern in starts:
                starts[pattern].add(access.start_bytes)
            else:
                starts[pattern] = {access.start_bytes}
    return runs


@dataclass(frozen=True)
class Footprint:
    """Different bytes that are touched, and the size of a cache that holds them.

    They differ where addresses jump by powers of two.
    """

    touched_bytes: float
    held_bytes: float


def footprints(runs: Sequence[Run], depths: Iterable[int]) -> list[Footprint]:
    """What one execution of what is inside the first `depth` loops touches."""
    patterns = _patterns(runs)
    wanted = list(depths)
    found = {depth: _union(patterns, depth) for depth in set(wanted)}
    return [found[depth] for depth in wanted]


def missed_bytes(runs: Sequence[Run], caches_bytes: Sequence[int]) -> list[float]:
    """Bytes that caches of these sizes fetch in one call of a kernel that is called repeatedly.

    Iterations of a loop share what they touch as far as one of them fits into the cache, and the
    parts of a sequence as far as they fit together; the reuse-distance argument of Wolf and Lam
    (PLDI 1991, section 3), applied to the whole tree of loops.
    """
    patterns = _patterns(runs)
    total = _union(patterns, 0)
    found = _missed(runs, patterns, total, 0, caches_bytes)
    held = total.held_bytes
    # What fits as a whole is still there from the last call.
    return [
        0.0 if held <= size else missed for missed, size in zip(found, caches_bytes, strict=True)
    ]


def _missed(
    runs: Sequence[Run],
    patterns: _Patterns,
    whole: Footprint,
    depth: int,
    caches_bytes: Sequence[int],
) -> list[float]:
    """For one execution of the sequence inside `depth` loops, which touches `whole`."""
    if whole.held_bytes <= min(caches_bytes):
        return [whole.touched_bytes] * len(caches_bytes)
    result = [0.0] * len(caches_bytes)
    for part in _parts(runs, depth):
        own = patterns if len(part) == len(runs) else _patterns(part)
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


def _parts(runs: Sequence[Run], depth: int) -> Iterable[list[Run]]:
    """Those that follow each other in the same loop at `depth`, or in none."""
    part: list[Run] = []
    last: object = None
    for run in runs:
        loop = run.loops[depth] if depth < len(run.loops) else None
        if part and loop is not last:
            yield part
            part = []
        part.append(run)
        last = loop
    if part:
        yield part


def _patterns(runs: Sequence[Run]) -> _Patterns:
    """The patterns of all runs, and where they begin."""
    found = runs[0].patterns if len(runs) == 1 else _united(runs)
    return [
        (pattern, (len(starts_bytes), min(starts_bytes), max(starts_bytes)))
        for pattern, starts_bytes in found.items()
    ]


def _united(runs: Sequence[Run]) -> Mapping[_Pattern, set[int]]:
    found: dict[_Pattern, set[int]] = {}
    for run in runs:
        for pattern, starts_bytes in run.patterns.items():
            known = found.get(pattern)
            found[pattern] = starts_bytes if known is None else known | starts_bytes
    return found


def _union(patterns: _Patterns, depth: int) -> Footprint:
    ranges: dict[int, tuple[int, int, int, int, int]] = {}
    for pattern, starts in patterns:
        touched, held, low, high = pattern.touched(depth, starts)
        number, size_bytes = pattern.tensor
        if number in ranges:
            more, more_held, lowest, highest, _ = ranges[number]
            touched, held = touched + more, held + more_held
            low, high = min(low, lowest), max(high, highest)
        ranges[number] = (touched, held, low, high, size_bytes)
    return Footprint(
        float(sum(min(each, high - low, size) for each, _, low, high, size in ranges.values())),
        float(sum(min(held, high - low) for _, held, low, high, _ in ranges.values())),
    )
