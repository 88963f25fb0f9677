"""A plan as notebooks show it: its report, and memory and timeline as pictures."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.resources import files

from tvm_xengine.report.html.pictures import legend, memory_over_time, timeline
from tvm_xengine.report.html.story import Story

_HEIGHT_PX = 620
"""The report's lines, a picture of memory and a lane of the timeline; more is scrolled to."""
_DEVICES = 2
"""Devices with a picture; a notebook is scrolled through, and the HTML report has all."""


def framed(report: str, story: Story) -> str:
    """The HTML of a cell; a frame keeps the style from the rest of the notebook."""
    page = "".join(_page(report, story))
    return (
        f'<iframe srcdoc="{escape(page)}" title="plan"'
        f' style="width:100%;height:{_HEIGHT_PX}px;border:0"></iframe>'
    )


def _page(report: str, story: Story) -> Iterator[str]:
    style = (files(__package__) / "report.css").read_text(encoding="utf-8")
    yield f"<!DOCTYPE html><meta charset=utf-8><style>{style}</style>"
    yield f"<pre style='white-space:pre-wrap'>{escape(report)}</pre>"
    for device in list(story.plan.problem.platform.index)[:_DEVICES]:
        if story.live_bytes(device):
            yield f"<h3>Memory of {escape(device)} over time</h3>{legend(story, device)}"
            yield memory_over_time(story, device, "time")
    yield "<h3>Timeline</h3>"
    yield from timeline(story)
