"""The problem of one of many equal replicas, in which exchanges with the others are ops of a network."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_xengine.scheduling.constraints import Constraints
from tvm_xengine.scheduling.graph import Op, OpGraph
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.replicas.buckets import only_updates_read
from tvm_xengine.scheduling.replicas.group import ReplicaGroup

NETWORK = "network"
"""Name of the device that stands for the network."""
_AT_ONCE_GB_S = 1e9
"""Bandwidth between a device and what stands for the network: the time is that of the exchange itself."""
_LEAST_US = 1e-3
"""Ops take some time; an exchange of nothing takes a nanosecond."""


@dataclass(frozen=True)
class Exchanges:
    """Ops of a step in two shares that read what both have made.

    Attributes
    ----------
    sums
        Those that add.
    joins
        Those that put slices one behind the other.
    """

    sums: Collection[str]
    joins: Collection[str]


def one_of_many(
    problem: Problem,
    share_of: Mapping[str, int],
    exchanges: Exchanges,
    group: ReplicaGroup,
    bucket_bytes: int,
) -> Problem:
    """What one machine of a group does in a step, the same as all others at the same time.

    The ops are those of the first share and of none. Exchanges run on a device that stands for the
    network, one after the other, beside the machine's own devices: an all-reduce for sums, an all-gather
    for joins. So a schedule decides when they run, and a bound is for all schedules of this kind.

    Parameters
    ----------
    problem
        Of a step in two shares of the size that each machine has.
    share_of
        The share of each op and input that belongs to one.
    bucket_bytes
        Gradients are added together until they are so large; 0 adds each one alone.
    """
    graph = problem.graph
    dropped = {name for name, share in share_of.items() if share}
    gone = {output for op in graph.ops if op.name in dropped for output in op.outputs}
    gone |= {t.name for t in graph.tensors if t.name in dropped and t.role.is_resident}
    views = {t.name for t in graph.tensors if graph.base[t.name] in gone}
    ops = [
        replace(op, inputs=tuple(name for name in op.inputs if name not in views))
        for op in graph.ops
        if op.name not in dropped
    ]
    ops = _in_buckets(graph, ops, exchanges.sums, bucket_bytes)
    tensors = tuple(t for t in graph.tensors if t.name not in views)
    sizes_bytes = {t.name: t.size_bytes for t in tensors}
    exchanged = {
        op.name: {NETWORK: OpCost(max(time_us, _LEAST_US))}
        for op in ops
        if (time_us := _exchange_us(op, exchanges, group, sizes_bytes)) is not None
    }
    return Problem(
        OpGraph(tensors, tuple(ops), tuple(n for n in graph.outputs if n not in views)),
        _with_network(problem),
        {op.name: exchanged.get(op.name) or problem.costs[op.name] for op in ops},
        {name: device for name, device in problem.home.items() if name not in views},
        _constraints(problem.constraints, ops),
    )


def _exchange_us(
    op: Op, exchanges: Exchanges, group: ReplicaGroup, sizes_bytes: Mapping[str, int]
) -> float | None:
    """How long an op takes that exchanges something with the group; None for any other."""
    if op.name in exchanges.joins:
        return group.all_gather_us(group.count * sum(sizes_bytes[name] for name in op.inputs))
    if op.name in exchanges.sums:
        return group.all_reduce_us(sum(sizes_bytes[output] for output in op.outputs))
    return None


def places_of_one(problem: Problem, device: str) -> dict[str, str]:
    """Exchanges on the network, all else on one device."""
    return {
        op: NETWORK if there.keys() == {NETWORK} else device for op, there in problem.costs.items()
    }


def _in_buckets(
    graph: OpGraph, ops: Sequence[Op], sums: Collection[str], bucket_bytes: int
) -> list[Op]:
    """The ops with sums that only updates read put together, each bucket where its last gradient is made."""
    found: list[Op] = []
    bucket: list[Op] = []

    def close() -> None:
        if bucket:
            found.append(
                replace(
                    bucket[0],
                    inputs=tuple(name for op in bucket for name in op.inputs),
                    outputs=tuple(name for op in bucket for name in op.outputs),
                )
            )
            found.extend(waiting)
        bucket.clear()
        waiting.clear()

    waiting: list[Op] = []
    for op in ops:
        made = {output for one in bucket for output in one.outputs}
        if op.name in sums and only_updates_read(graph, op):
            bucket.append(op)
            if (
                sum(graph.tensor[t].size_bytes for one in bucket for t in one.outputs)
                >= bucket_bytes
            ):
                close()
        elif made & set(graph.reads[op.name]) or _reads_any(graph, op, waiting):
            waiting.append(op)
        else:
            found.append(op)
    close()
    return found


def _reads_any(graph: OpGraph, op: Op, others: Sequence[Op]) -> bool:
    """Whether an op reads what others make, or overwrites what they read."""
    read = set(graph.reads[op.name])
    made = {output for other in others for output in other.outputs}
    before = {name for other in others for name in graph.reads[other.name]}
    return bool(read & made) or any(state in before for _, state in op.updates)


def _with_network(problem: Problem) -> Platform:
    platform = problem.platform
    near = [device.name for device in platform.computing]
    links = [
        Link(src, dst, 0.0, _AT_ONCE_GB_S)
        for name in near
        for src, dst in ((name, NETWORK), (NETWORK, name))
    ]
    return replace(
        platform,
        devices=(*platform.devices, Device(NETWORK, "llvm")),
        links=(*platform.links, *links),
    )


def _constraints(constraints: Constraints, ops: Sequence[Op]) -> Constraints:
    names = {op.name for op in ops}
    pinned = {op: device for op, device in constraints.pinned.items() if op in names}
    return Constraints(pinned, constraints.kept & names)
