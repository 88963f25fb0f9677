"""The pictures of a report: memory over time, the arena map, and the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from tvm_xengine.explain.categories import CATEGORIES
from tvm_xengine.report.html.story import AGAIN, COPY, Intervals, Story
from tvm_xengine.report.html.svg import (
    WIDTH,
    attributes,
    line,
    number,
    picture,
    rectangle,
    stairs,
)
from tvm_xengine.scheduling.durations import format_us
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes

_HEIGHT = 320.0
"""Height of the pictures of memory: a third of their width shows peaks without steep slopes."""
_FREE = {"preserveAspectRatio": "none"}
"""Pictures of memory have no text, so that a narrow screen may show them higher."""
_HEADROOM = 1.06
"""The picture ends a little above the budget and the arena, so that both lines can be seen."""
_BAR = 26.0
"""Height of the bars of the timeline: that of a line of text."""
_LEAST_WIDTH = 0.4
"""A shorter bar could not be seen."""


def class_of(category: str) -> str:
    """The class by which the style sheet colours a category."""
    return f"c-{category.replace(' ', '-')}"


def legend(story: Story, device: str) -> str:
    """What the colours and lines of the pictures of a device mean."""
    keys = "".join(
        f'<li><i class="{class_of(name)}"></i>{escape(name)}</li>'
        for name in story.live_bytes(device)
    )
    lines = "".join(
        f'<li><i class="key-{name}"></i>{name} {format_bytes(size)}</li>'
        for name, size in _limit_bytes(story, device).items()
    )
    return f'<ul class="legend">{keys}{lines}</ul>'


def legend_of_bars(story: Story) -> str:
    """What the colours of the timeline mean."""
    words = {AGAIN: "an op that ran before", COPY: "copies"}
    shown = [*CATEGORIES, AGAIN, COPY]
    keys = "".join(
        f'<li><i class="{class_of(kind) if kind in CATEGORIES else kind}"></i>{words.get(kind, kind)}</li>'
        for kind in shown
        if kind in story.kinds
    )
    return f'<ul class="legend">{keys}</ul>'


def phases(story: Story, by: str) -> str:
    """The names of the passes above a picture of memory, each as wide as its part of the picture."""
    if story.first_backward is None:
        return ""
    share = 100 * story.edges(by)[story.first_backward] / WIDTH
    return (
        f'<p class="phases"><span style="width:{number(share)}%">forward</span>'
        "<span>backward and update</span></p>"
    )


def memory_over_time(story: Story, device: str, by: str) -> str:
    """Live bytes stacked by category, the budget as a line."""
    edges, series = story.edges(by), story.live_bytes(device)
    scale = top_bytes(story, device)
    parts = list(_stack(edges, series, scale))
    parts += _limits(story, device, scale)
    if story.first_backward is not None:
        x = edges[story.first_backward]
        parts.append(line(x, 0, x, _HEIGHT, class_="phase"))
    parts.append(f'<line class="cursor"{attributes(x1=-9, y1=0, x2=-9, y2=_HEIGHT)}/>')
    label = f"Live bytes on {device} over the {by}s, stacked by category"
    more = {"class_": "memory", "data_device": device, "tabindex": "0", **_FREE}
    last = str(len(story.steps) - 1)
    limits = {"aria_valuemin": "0", "aria_valuemax": last, "aria_valuenow": "0"}
    return picture(label, _HEIGHT, parts, role="slider", **limits, **more)


def arena_map(story: Story, device: str, by: str) -> str:
    """Address against steps: a rectangle for each tensor and workspace."""
    edges, scale = story.edges(by), top_bytes(story, device)
    parts = []
    for number_of, block in enumerate(story.blocks):
        if block.device != device:
            continue
        height = _HEIGHT * block.size_bytes / scale
        top = _HEIGHT * (1 - (block.offset_bytes + block.size_bytes) / scale)
        x, width = edges[block.first], edges[block.last + 1] - edges[block.first]
        size = f"{format_bytes(block.size_bytes)} of {block.category}"
        title = (
            f"{block.label}: {f'{size}, {block.kind}' if block.kind else size}, at address"
            f" {block.offset_bytes}, from {story.described(block.first)} to"
            f" {story.described(block.last)}"
        )
        more = {"class_": f"block {class_of(block.category)}", "data_b": str(number_of)}
        parts.append(rectangle(x, top, width, height, title, **more))
    parts += _limits(story, device, scale)
    label = f"Addresses on {device} over the {by}s"
    return picture(label, _HEIGHT, parts, class_="arena", **_FREE, data_device=device)


def timeline(story: Story, measured_us: Intervals | None = None) -> Iterator[str]:
    """For each device and link a line with its name, and pictures of what runs there when.

    Parameters
    ----------
    measured_us
        When each step of the schedule began and ended in a run; shown below the plan, at its scale.
    """
    rows = [("planned", dict(zip(story.positions, story.intervals_us, strict=True)))]
    if measured_us:
        rows.append(("measured", dict(measured_us)))
    end = max((stop for _, row in rows for _, stop in row.values()), default=0.0) or 1.0
    yield f'<p class="lane span"><span>0</span><span>{format_us(end)}</span></p>'
    for lane in dict.fromkeys(story.lanes):
        mine = [k for k, one in enumerate(story.lanes) if one == lane]
        for name, row in rows:
            there = [k for k in mine if story.positions[k] in row]
            busy = sum(stop - begin for begin, stop in (row[story.positions[k]] for k in there))
            yield f'<p class="lane">{escape(lane)}, {name}: {format_us(busy)} busy</p>'
            bars = [_bar(story, k, row[story.positions[k]], end) for k in there]
            label = f"What runs on {lane} over {format_us(end)}, {name}"
            yield picture(label, _BAR, bars, class_="timeline", **_FREE)


def _bar(story: Story, k: int, interval_us: tuple[float, float], end_us: float) -> str:
    begin, stop = interval_us
    title = f"{story.described(k)}: {format_us(stop - begin)} from {format_us(begin)}"
    kind = story.kinds[k]
    width = max(WIDTH * (stop - begin) / end_us, _LEAST_WIDTH)
    shown = kind if kind in (AGAIN, COPY) else class_of(kind)
    return rectangle(WIDTH * begin / end_us, 0.0, width, _BAR, title, class_=f"run {shown}")


def _stack(
    edges: Sequence[float], series: Mapping[str, Sequence[int]], scale: float
) -> Iterator[str]:
    lower = [0] * (len(edges) - 1)
    for category, live in series.items():
        upper = [a + b for a, b in zip(lower, live, strict=True)]
        path = stairs(
            edges, *([_HEIGHT * (1 - v / scale) for v in side] for side in (lower, upper))
        )
        yield f'<path class="{class_of(category)}" d="{path}"><title>{category}</title></path>'
        lower = upper


def _limits(story: Story, device: str, scale: float) -> list[str]:
    """The lines of the budget and of the arena."""
    parts = []
    for name, size in _limit_bytes(story, device).items():
        if size <= scale:
            y = _HEIGHT * (1 - size / scale)
            parts.append(line(0, y, WIDTH, y, class_=name))
    return parts


def _limit_bytes(story: Story, device: str) -> Mapping[str, int]:
    budget = story.plan.problem.platform.device(device).budget_bytes
    arena = {"arena": story.plan.arenas.arena_bytes[device]}
    return {**arena, "budget": budget} if budget < UNLIMITED_BYTES else arena


def top_bytes(story: Story, device: str) -> float:
    """What the top of a picture of memory means; a budget far above the arena is not drawn."""
    budget = story.plan.problem.platform.device(device).budget_bytes
    arena = max(1, story.plan.arenas.arena_bytes[device])
    return _HEADROOM * (budget if budget <= 2 * arena else arena)
