"""Memory that all processes of a run see, where they are on one host."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import tvm

from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.runtime.events import Events, can_overlap
from tvm_xengine.runtime.mapped_memory import MappedMemory

_EVENTS = "events"


@dataclass(frozen=True)
class Memories:
    """Pieces of memory by name: those of this process, and those of all."""

    own: Mapping[str, MappedMemory]
    all: Mapping[str, MappedMemory]


def see_one_memory(ranks: Ranks) -> bool:
    """Collective: whether each process can map memory of every other one."""
    if not can_overlap():
        return bool(ranks.least(0))
    token = secrets.token_bytes(16)
    mine = MappedMemory.create(len(token))
    mine.write(token)
    said = [json.loads(text) for text in ranks.gather_texts(json.dumps([mine.place, token.hex()]))]
    found = bool(ranks.least(int(all(_holds(place, there) for place, there in said))))
    mine.close()
    return found


def _holds(place: str, token: str) -> bool:
    """Whether memory of another process of this host is there; on another host it is not."""
    expected = bytes.fromhex(token)
    try:
        there = MappedMemory.open(place, len(expected))
    except (OSError, ValueError):
        return False
    there.close()
    return there.read() == expected


def share_memories(ranks: Ranks, own: Mapping[str, MappedMemory]) -> Memories:
    """Collective: what all processes give, each under names of its own, mapped in all of them."""
    places = json.dumps({name: [one.place, one.size_bytes] for name, one in own.items()})
    found: dict[str, MappedMemory] = dict(own)
    for text in ranks.gather_texts(places):
        for name, (place, size_bytes) in json.loads(text).items():
            if name not in own:
                found[name] = MappedMemory.open(place, size_bytes)
                found[name].close()
    ranks.meet()  # all have mapped it
    for one in own.values():
        one.close()
    return Memories(own, found)


def shared_events(ranks: Ranks, count: int) -> Events:
    """Collective: events that each process signals and waits for."""
    size_bytes = 8 * Events.words(count)
    own = {_EVENTS: MappedMemory.create(size_bytes)} if ranks.leads else {}
    words: tvm.runtime.Tensor = (
        share_memories(ranks, own).all[_EVENTS].tensor(0, (Events.words(count),), "int64")
    )
    events = Events(count, words)
    if ranks.leads:
        events.reset()
    ranks.meet()
    return events
