"""Timelines, planned and measured, as a trace that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tvm_xengine.report.html.story import Intervals, Story
from tvm_xengine.scheduling.schedule import Compute, describe

_PLANNED, _MEASURED = "planned timeline", "measured timeline"
_MEMORY = {_PLANNED: "planned memory", _MEASURED: "planned memory at measured times"}
_GROUPS = (_PLANNED, _MEASURED, *_MEMORY.values())
"""Of tracks."""


def trace(story: Story, measured_us: Intervals | None = None) -> str:
    """The trace as JSON: a track for each device and link, and a counter of each device's memory.

    Parameters
    ----------
    measured_us
        Of a step that was run, shown beside the plan; empty where none was.
    """
    planned_us = dict(zip(story.positions, story.intervals_us, strict=True))
    shown = {_PLANNED: planned_us, **({_MEASURED: measured_us} if measured_us else {})}
    events = [
        event
        for group, intervals_us in shown.items()
        for event in (
            *_names(story, group),
            *_runs(story, group, intervals_us),
            *_memory(story, group, intervals_us),
        )
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _names(story: Story, group: str) -> Iterator[dict[str, object]]:
    for name in (group, _MEMORY[group]):
        number = _GROUPS.index(name)
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
    for track, lane in enumerate(dict.fromkeys(story.lanes)):
        named = {"args": {"name": lane}, "pid": _GROUPS.index(group), "tid": track}
        yield {"ph": "M", "name": "thread_name", **named}


def _runs(story: Story, group: str, intervals_us: Intervals) -> Iterator[dict[str, object]]:
    tracks = {lane: track for track, lane in enumerate(dict.fromkeys(story.lanes))}
    graph = story.plan.problem.graph
    for k, step in enumerate(story.steps):
        begin_us, end_us = intervals_us[story.positions[k]]
        layer = story.memory.names.layer.get(step.op, "") if isinstance(step, Compute) else ""
        kernel = graph.op[step.op].kernel if isinstance(step, Compute) else ""
        yield {
            "ph": "X",
            "name": describe(step),
            "cat": story.kinds[k],
            "ts": begin_us,
            "dur": end_us - begin_us,
            "pid": _GROUPS.index(group),
            "tid": tracks[story.lanes[k]],
            "args": {"step": story.positions[k], "layer": layer, "kernel": kernel},
        }


def _memory(story: Story, group: str, intervals_us: Intervals) -> Iterator[dict[str, object]]:
    """The live bytes of the schedule when each of its steps begins."""
    number = _GROUPS.index(_MEMORY[group])
    for device in story.plan.problem.platform.devices:
        series = story.live_bytes(device.name)
        for k, position in enumerate(story.positions):
            begin_us, _ = intervals_us[position]
            live = {category: values[k] for category, values in series.items()}
            if live:
                name = f"{device.name} live bytes"
                yield {"ph": "C", "name": name, "ts": begin_us, "pid": number, "args": live}
