"""The planned memory as a snapshot that PyTorch's memory viewer opens.

The format is that of ``torch.cuda.memory._snapshot``: allocations and frees of each device in their
order, and what is in memory at the end. A call stack says which step, layer and tensor it is.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from tvm_xengine.report.html.story import Block, Story

_BASE = 1 << 32
"""Address at which an arena begins: viewers take 0 for no address."""
_PROTOCOL = 2
"""Of pickle: the newest that the viewer's reader, written in JavaScript, knows for sure."""


def memory_snapshot(story: Story) -> bytes:
    """The snapshot as a pickle of plain lists, dictionaries, texts and numbers."""
    devices = [device.name for device in story.plan.problem.platform.devices]
    document = {
        "segments": [
            segment
            for number, device in enumerate(devices)
            for segment in _segments(story, device, number)
        ],
        "device_traces": [list(_trace(story, device)) for device in devices],
        "allocator_settings": {},
    }
    return pickle.dumps(document, protocol=_PROTOCOL)


def _trace(story: Story, device: str) -> Iterator[dict[str, object]]:
    """Allocations of each step, and after it what it frees."""
    begins: dict[int, list[Block]] = defaultdict(list)
    ends: dict[int, list[Block]] = defaultdict(list)
    for block in story.blocks:
        if block.device == device:
            begins[block.first].append(block)
            ends[block.last].append(block)
    ends.pop(len(story.steps) - 1, None)  # what is there at the end stays
    for k, (begin_us, end_us) in enumerate(story.intervals_us):
        for block in begins[k]:
            yield _event("alloc", story, block, begin_us)
        for block in ends[k]:
            yield _event("free_requested", story, block, end_us)
            yield _event("free_completed", story, block, end_us)


def _event(action: str, story: Story, block: Block, time_us: float) -> dict[str, object]:
    return {
        "action": action,
        "addr": _BASE + block.offset_bytes,
        "size": block.size_bytes,
        "stream": 0,
        "time_us": round(time_us),
        "frames": _frames(story, block),
    }


def _frames(story: Story, block: Block) -> list[dict[str, object]]:
    """The tensor, then its category and the step that makes it, as if they called each other."""
    at = story.positions[block.first]
    return [
        {"name": block.label, "filename": block.category, "line": at},
        {"name": story.described(block.first), "filename": "schedule", "line": at},
    ]


def _segments(story: Story, device: str, number: int) -> list[dict[str, Any]]:
    """The arena with what is in it at the end of the step; gaps are inactive blocks."""
    size = story.plan.arenas.arena_bytes[device]
    if not size:
        return []
    end = len(story.steps) - 1
    there = [b for b in story.blocks if b.device == device and b.last == end]
    blocks = _tiled(story, sorted(there, key=lambda one: one.offset_bytes), size)
    active = sum(one["size"] for one in blocks if one["state"] == "active_allocated")
    return [
        {
            "device": number,
            "address": _BASE,
            "total_size": size,
            "allocated_size": active,
            "active_size": active,
            "requested_size": active,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": blocks,
        }
    ]


def _tiled(story: Story, blocks: Sequence[Block], size: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    at = 0
    for block in blocks:
        if block.offset_bytes > at:
            found.append(_piece(at, block.offset_bytes - at, "inactive", []))
        frames = _frames(story, block)
        found.append(_piece(block.offset_bytes, block.size_bytes, "active_allocated", frames))
        at = block.offset_bytes + block.size_bytes
    if at < size:
        found.append(_piece(at, size - at, "inactive", []))
    return found


def _piece(offset: int, size: int, state: str, frames: list[dict[str, object]]) -> dict[str, Any]:
    place = {"address": _BASE + offset, "size": size, "requested_size": size}
    return {**place, "state": state, "frames": frames}
