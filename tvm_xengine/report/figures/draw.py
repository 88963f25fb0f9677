"""The pictures of a plan, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tvm_xengine.report.html.pictures import top_bytes
from tvm_xengine.report.html.story import AGAIN, COPY, Story
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MIB = 1 << 20
_WIDTH_IN = 6.4
"""Inches: a little less than the text of a page in one column."""
_HEIGHT_IN = 3.2
_LANE_IN = 0.35
"""Height of a lane of the timeline: a line of text and some room."""
_LEAST_SHARE = 4e-4
"""Shorter runs are drawn as wide as this share of the picture, or they could not be seen."""

COLOURS = {
    "parameters": "#0072b2",
    "optimizer state": "#56b4e9",
    "statistics": "#7a8288",
    "constants": "#a9b1b8",
    "batch": "#c9a400",
    "activations": "#009e73",
    "gradients": "#d55e00",
    "workspace": "#cc79a7",
    COPY: "#6e40c9",
    AGAIN: "#24292f",
}
"""Of the categories, as in the HTML report: those of Okabe and Ito, told apart by the colour-blind."""


def memory_over_time(story: Story, device: str) -> Figure:
    """Live bytes of a device over time, stacked by category, with its budget and its arena."""
    figure, axes = _empty()
    edges_ms = _edges_ms(story)
    series = story.live_bytes(device)
    lower = [0.0] * len(story.steps)
    for category, live in series.items():
        upper = [a + b / _MIB for a, b in zip(lower, live, strict=True)]
        axes.fill_between(
            edges_ms,
            [*lower, lower[-1]],
            [*upper, upper[-1]],
            step="post",
            color=COLOURS[category],
            linewidth=0,
            label=category,
        )
        lower = upper
    _limits(axes, story, device)
    axes.set_title(f"Memory of {device}")
    axes.set_ylabel("live bytes [MiB]")
    axes.set_xlabel(_serial_time(story))
    _finish(figure, axes, edges_ms)
    return figure


def arena_map(story: Story, device: str) -> Figure:
    """Addresses of a device over time: a rectangle for each tensor and workspace."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    figure, axes = _empty()
    edges_ms = _edges_ms(story)
    for category in story.live_bytes(device):
        mine = [b for b in story.blocks if b.device == device and b.category == category]
        rectangles = [
            Rectangle(
                (edges_ms[one.first], one.offset_bytes / _MIB),
                edges_ms[one.last + 1] - edges_ms[one.first],
                one.size_bytes / _MIB,
            )
            for one in mine
        ]
        axes.add_collection(
            PatchCollection(
                rectangles, facecolor=COLOURS[category], edgecolor="white", linewidth=0.3
            )
        )
        axes.plot([], [], "s", color=COLOURS[category], label=category)
    _limits(axes, story, device)
    axes.set_title(f"Arena of {device}")
    axes.set_ylabel("address [MiB]")
    axes.set_xlabel(_serial_time(story))
    _finish(figure, axes, edges_ms)
    return figure


def timeline(story: Story) -> Figure:
    """What runs on each device and link when."""
    from matplotlib.patches import Patch

    lanes = list(dict.fromkeys(story.lanes))
    figure, axes = _empty(height_in=1.3 + _LANE_IN * len(lanes))
    end_ms = _end_ms(story)
    for row, lane in enumerate(lanes):
        for kind in dict.fromkeys(story.kinds):
            mine = [
                (begin / 1000, max((stop - begin) / 1000, _LEAST_SHARE * end_ms))
                for (begin, stop), one, where in zip(
                    story.intervals_us, story.kinds, story.lanes, strict=True
                )
                if where == lane and one == kind
            ]
            axes.broken_barh(mine, (row - 0.4, 0.8), facecolors=COLOURS[kind], linewidth=0)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.invert_yaxis()
    axes.set_xlabel("time [ms]")
    axes.set_title("Timeline, by what the runs make")
    keys = [Patch(color=COLOURS[kind], label=_SAID.get(kind, kind)) for kind in _known(story)]
    _finish(figure, axes, [0.0, end_ms], keys)
    return figure


_SAID = {COPY: "copies", AGAIN: "recomputed"}


def _known(story: Story) -> Iterable[str]:
    """The kinds that occur, in the order of `COLOURS`."""
    there = set(story.kinds)
    return [kind for kind in COLOURS if kind in there]


def _empty(height_in: float = _HEIGHT_IN) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    return figure, figure.subplots()


def _edges_ms(story: Story) -> list[float]:
    """When each step begins, and the last one ends, run one after the other."""
    edges = [0.0]
    for duration_us in story.durations_us:
        edges.append(edges[-1] + duration_us / 1000)
    return edges


def _serial_time(story: Story) -> str:
    """The axis of memory; it says where the timeline's is another one."""
    is_overlapped = story.plan.is_overlapped
    return "time of the steps one after the other [ms]" if is_overlapped else "time [ms]"


def _end_ms(story: Story) -> float:
    return max((stop for _, stop in story.intervals_us), default=0.0) / 1000


def _limits(axes: Axes, story: Story, device: str) -> None:
    """The lines of the arena and of the budget, where it is near."""
    budget = story.plan.problem.platform.device(device).budget_bytes
    top = top_bytes(story, device)
    axes.axhline(
        story.plan.arenas.arena_bytes[device] / _MIB, color="#57606a", linestyle="--", label="arena"
    )
    if budget < UNLIMITED_BYTES and budget <= top:
        axes.axhline(budget / _MIB, color="#c01048", label="budget")
    axes.set_ylim(0, top / _MIB)


def _finish(
    figure: Figure, axes: Axes, edges_ms: list[float], keys: Sequence[Artist] | None = None
) -> None:
    axes.set_xlim(edges_ms[0], edges_ms[-1])
    handles = keys or axes.get_legend_handles_labels()[0]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
