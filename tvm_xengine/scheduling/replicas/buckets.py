"""Which sums over shares of a batch are exchanged together."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvm_xengine.scheduling.graph import Op, OpGraph


def only_updates_read(graph: OpGraph, op: Op) -> bool:
    """Whether an op has readers, and all of them update state: they can wait for one another."""
    readers = [r for output in op.outputs for r in graph.consumers[output]]
    return bool(readers) and all(graph.op[r].updates for r in readers)


def buckets_of(
    graph: OpGraph, sums: Collection[str], bucket_bytes: int
) -> tuple[tuple[str, ...], ...]:
    """Sums that only updates read, in the order of the graph, put together until they are so large."""
    found: list[tuple[str, ...]] = []
    bucket: list[str] = []
    size_bytes = 0
    for op in graph.ops:
        if op.name not in sums or not only_updates_read(graph, op):
            continue
        bucket.append(op.name)
        size_bytes += _made_bytes(graph, op.name)
        if size_bytes >= bucket_bytes:
            found.append(tuple(bucket))
            bucket, size_bytes = [], 0
    return (*found, tuple(bucket)) if bucket else tuple(found)


def owners(graph: OpGraph, buckets: Sequence[Sequence[str]], shares: int) -> list[int]:
    """The share that adds each bucket, such that all add as much."""
    taken = [0] * shares
    chosen = [0] * len(buckets)
    sizes = [sum(_made_bytes(graph, name) for name in bucket) for bucket in buckets]
    for k in sorted(range(len(buckets)), key=lambda k: -sizes[k]):
        chosen[k] = min(range(shares), key=lambda share: taken[share])
        taken[chosen[k]] += sizes[k]
    return chosen


def _made_bytes(graph: OpGraph, op: str) -> int:
    return sum(graph.tensor[output].size_bytes for output in graph.op[op].outputs)
