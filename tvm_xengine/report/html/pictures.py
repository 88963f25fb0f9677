"""The pictures of a report: memory over time, the arena map, and the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from tvm_xengine.report.html.story import Story
from tvm_xengine.report.html.svg import (
    WIDTH,
    attributes,
    line,
    picture,
    rectangle,
    stairs,
)
from tvm_xengine.scheduling.durations import format_us
from tvm_xengine.scheduling.platform import UNLIMITED_BYTES
from tvm_xengine.scheduling.schedule import Compute, Step, Transfer
from tvm_xengine.scheduling.sizes import format_bytes
from tvm_xengine.solvers.result import Objective

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


def memory_over_time(story: Story, device: str, by: str) -> str:
    """Live bytes stacked by category, the budget as a line."""
    edges, series = story.edges(by), story.live_bytes(device)
    scale = _top_bytes(story, device)
    parts = list(_stack(edges, series, scale))
    parts += _limits(story, device, scale)
    parts.append(f'<line class="cursor"{attributes(x1=-9, y1=0, x2=-9, y2=_HEIGHT)}/>')
    label = f"Live bytes on {device} over the {by}s, stacked by category"
    return picture(
        label, _HEIGHT, parts, class_="memory", **_FREE, data_device=device, tabindex="0"
    )


def arena_map(story: Story, device: str, by: str) -> str:
    """Address against steps: a rectangle for each tensor and workspace."""
    edges, scale = story.edges(by), _top_bytes(story, device)
    parts = []
    for number_of, block in enumerate(story.blocks):
        if block.device != device:
            continue
        height = _HEIGHT * block.size_bytes / scale
        top = _HEIGHT * (1 - (block.offset_bytes + block.size_bytes) / scale)
        x, width = edges[block.first], edges[block.last + 1] - edges[block.first]
        title = (
            f"{block.label}: {format_bytes(block.size_bytes)} of {block.category} at address"
            f" {block.offset_bytes}, from {story.described(block.first)} to"
            f" {story.described(block.last)}"
        )
        more = {"class_": f"block {class_of(block.category)}", "data_b": str(number_of)}
        parts.append(rectangle(x, top, width, height, title, **more))
    parts += _limits(story, device, scale)
    label = f"Addresses on {device} over the {by}s"
    return picture(label, _HEIGHT, parts, class_="arena", **_FREE, data_device=device)


def timeline(story: Story) -> Iterator[str]:
    """For each device and link a line with its name, and a picture of what runs there when."""
    intervals = _intervals_us(story)
    end = max((stop for _, stop in intervals), default=0.0) or 1.0
    for lane in dict.fromkeys(_lane(step) for step in story.steps):
        mine = [k for k, step in enumerate(story.steps) if _lane(step) == lane]
        busy = sum(story.durations_us[k] for k in mine)
        yield f'<p class="lane">{escape(lane)}: {format_us(busy)} busy</p>'
        bars = [_bar(story, k, intervals[k], end) for k in mine]
        label = f"What runs on {lane} over {format_us(end)}"
        yield picture(label, _BAR, bars, class_="timeline", **_FREE)


def _bar(story: Story, k: int, interval_us: tuple[float, float], end_us: float) -> str:
    begin, stop = interval_us
    title = f"{story.described(k)}: {format_us(stop - begin)} from {format_us(begin)}"
    kind = "copy" if isinstance(story.steps[k], Transfer) else _kind_of(story, k)
    width = max(WIDTH * (stop - begin) / end_us, _LEAST_WIDTH)
    return rectangle(WIDTH * begin / end_us, 0.0, width, _BAR, title, class_=f"run {kind}")


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
    budget = story.plan.problem.platform.device(device).budget_bytes
    arena = story.plan.arenas.arena_bytes[device]
    shown = [("arena", arena)]
    if budget < UNLIMITED_BYTES and budget <= scale:
        shown.append(("budget", budget))
    parts = []
    for name, size in shown:
        y = _HEIGHT * (1 - size / scale)
        parts.append(line(0, y, WIDTH, y, class_=name))
    return parts


def _top_bytes(story: Story, device: str) -> float:
    """What the top of a picture of memory means; a budget far above the arena is not drawn."""
    budget = story.plan.problem.platform.device(device).budget_bytes
    arena = max(1, story.plan.arenas.arena_bytes[device])
    return _HEADROOM * (budget if budget <= 2 * arena else arena)


def _intervals_us(story: Story) -> Sequence[tuple[float, float]]:
    """When each step runs: side by side where that is the objective, else one after the other."""
    if story.plan.result.objective is Objective.MAKESPAN:
        every = story.plan.simulation.intervals_us
        return [every[k] for k in story.positions]
    total, found = 0.0, []
    for duration in story.durations_us:
        found.append((total, total + duration))
        total += duration
    return found


def _lane(step: Step) -> str:
    if isinstance(step, Transfer):
        return f"{step.src} to {step.dst}"
    return step.device


def _kind_of(story: Story, k: int) -> str:
    step = story.steps[k]
    assert isinstance(step, Compute)
    earlier = story.steps[:k]
    is_again = any(isinstance(one, Compute) and one.op == step.op for one in earlier)
    if is_again:
        return "again"
    outputs = story.plan.problem.graph.op[step.op].outputs
    return class_of(story.memory.category[outputs[0]])
