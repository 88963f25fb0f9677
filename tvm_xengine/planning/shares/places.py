"""Where the ops of a step in shares run, and where its state lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm_xengine.scheduling.graph import OpGraph, Role
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.replicas.buckets import only_updates_read

_MOST_OF_BUDGET = 0.5
"""State is not spread to a device of which it would take more: the rest is for activations."""


def spread_state(
    graph: OpGraph, platform: Platform, devices: Sequence[str], share_of: Mapping[str, int]
) -> dict[str, str]:
    """A home for each state tensor that the step updates, such that every device sends and adds as much.

    The sum of a gradient is made where the state lies that it updates. So each of N devices receives
    and sends the share 1/N of gradients and parameters, as in an all-reduce of which one half scatters
    and the other one gathers. What one op updates stays together, and so does what the sums of a bucket
    update, where the share is that adds it. What no op updates is not named.

    Parameters
    ----------
    devices
        The device of each share.
    share_of
        The share of each op that works on one.
    """
    limit = {d: _MOST_OF_BUDGET * platform.device(d).budget_bytes for d in devices}
    taken = dict.fromkeys(devices, 0)
    home: dict[str, str] = {}
    for group, share in _updated_together(graph, share_of):
        trained = any(graph.tensor[name].role is Role.PARAMETER for name in group)
        if not trained:
            continue
        size = sum(graph.tensor[name].size_bytes for name in group)
        able = [d for d in devices if taken[d] + size <= limit[d]]
        chosen = min(able, key=lambda d: taken[d]) if able else platform.home
        if share is not None and devices[share] in able:
            chosen = devices[share]
        if chosen in taken:
            taken[chosen] += size
        home.update(dict.fromkeys(group, chosen))
    return home


def _updated_together(
    graph: OpGraph, share_of: Mapping[str, int]
) -> list[tuple[list[str], int | None]]:
    """State tensors whose updates read sums of one op, and the share that adds a bucket; largest first."""
    groups: dict[str, list[str]] = {}
    adds: dict[str, int] = {}
    for op in graph.ops:
        if not op.updates:
            continue
        made_by = [graph.producer[name] for name in graph.reads[op.name] if name in graph.producer]
        buckets = [
            name
            for name in made_by
            if len(graph.op[name].outputs) > 1 and only_updates_read(graph, graph.op[name])
        ]
        key = buckets[0] if buckets else op.name
        groups.setdefault(key, []).extend(state for _, state in op.updates)
        makers = [graph.producer.get(name, "") for name in graph.reads[key]] if buckets else []
        if parts := [share_of[maker] for maker in makers if maker in share_of]:
            adds[key] = max(parts, key=parts.count)
    found = [(group, adds.get(key)) for key, group in groups.items()]
    return sorted(found, key=lambda one: -sum(graph.tensor[name].size_bytes for name in one[0]))


def places_of_ops(
    graph: OpGraph, share_of: Mapping[str, int], devices: Sequence[str], home: Mapping[str, str]
) -> dict[str, str]:
    """The device of each op: that of its share, and else that of the state it is made for.

    Parameters
    ----------
    share_of
        The share of each op that works on one.
    devices
        The device of each share.
    home
        The device that updates each state tensor.
    """
    places = {name: devices[share] for name, share in share_of.items() if name in graph.op}
    for op in reversed(graph.ops):
        if op.name in places:
            continue
        if op.updates:
            places[op.name] = home[op.updates[0][1]]
            continue
        readers = [r for output in op.outputs for r in graph.consumers[output]]
        common = [places[r] for r in readers if r not in share_of]
        places[op.name] = common[0] if common else devices[0]
    return places
