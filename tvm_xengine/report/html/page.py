"""The page: summary, pictures, and the table of tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from tvm_xengine.explain.explanation import DeviceFinding, Explanation
from tvm_xengine.explain.fates import Fate
from tvm_xengine.explain.memory import Memory
from tvm_xengine.explain.names import Names
from tvm_xengine.explain.prices.speedups import FASTER_RATIO
from tvm_xengine.explain.words.sentences import (
    fate_in_words,
    price_from_bound,
    price_of_memory,
    share_in_words,
    smallest_in_words,
)
from tvm_xengine.explain.words.short_answers import (
    during_in_words,
    peak_in_words,
    tensor_in_words,
    treated_in_words,
    why_in_words,
)
from tvm_xengine.files.atomic_write import write_atomically
from tvm_xengine.planning.plan import Plan
from tvm_xengine.report.html.breakable import breakable
from tvm_xengine.report.html.front_picture import front_picture, front_table
from tvm_xengine.report.html.layers import (
    Layers,
    graph_of_layers,
    legend_of_layers,
    ops_by_layer,
)
from tvm_xengine.report.html.pictures import (
    arena_map,
    class_of,
    legend,
    legend_of_bars,
    memory_over_time,
    phases,
    timeline,
)
from tvm_xengine.report.html.story import Intervals, Story
from tvm_xengine.report.summary import keep_all_of
from tvm_xengine.scheduling.durations import format_amount, format_us
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes, format_type

_BY = ("step", "time")
_INTRODUCTION = (
    "How one training step (forward pass, loss, backward pass and update of one batch) runs within the"
    " memory of its devices. A tensor is <strong>kept</strong> until its last use, as in PyTorch; or"
    " <strong>recomputed</strong>: dropped, and made again before it is needed; or"
    " <strong>copied</strong> to another memory and back. All that a device holds lies in one block of"
    " memory, its <strong>arena</strong>."
)
_MOST_IN_SHORT = 3
"""Tensors that stand for the others; the table has all."""
FRONT_SHARE = 2.0
"""Time for a front, by that for the price of memory: it has more points, which need less effort."""


def check_page_path(path: Path) -> None:
    """Refuse a path that no browser opens as a page."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"expected a report that ends in .html, got {str(path)!r}")


@dataclass(frozen=True)
class Page:
    """What a report shows.

    Attributes
    ----------
    title
        Of the model.
    explanation
        Of the whole plan.
    measured_us
        When each step of the schedule ran; None where nothing was run.
    """

    title: str
    plan: Plan
    names: Names
    explanation: Explanation
    measured_us: Intervals | None = None

    def html(self) -> str:
        """The report as one document."""
        story = Story(Memory(self.plan, self.names))
        title = escape(self.title)
        return "".join(
            (
                '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{title}</title><style>{_own('report.css')}</style></head><body>",
                f"<header><h1>{title}</h1>{_summary(self)}</header><main>",
                *_memory(self, story),
                *_front(self.explanation),
                *_timeline(self, story),
                *_graph(story),
                *_tensors(self.explanation),
                "</main>",
                f'<script type="application/json" id="story">{_data(story)}</script>',
                f"<script>{_own('report.js')}</script></body></html>",
            )
        )

    def write(self, path: Path) -> None:
        """Write the report, whole or not at all."""
        write_atomically(path, self.html())


def _summary(page: Page) -> str:
    found, plan = page.explanation, page.plan
    steps = plan.schedule
    cards = [
        (f"{found.objective}, predicted", format_amount(found.value, found.unit)),
        ("from the optimum", "unknown" if found.gap is None else _at_most(found.gap)),
        ("recomputed ops", str(plan.recomputed_ops)),
        ("copies", str(steps.transfers)),
    ]
    if page.measured_us:
        took_us = max(stop for _, stop in page.measured_us.values())
        cards.insert(1, ("last step, measured", format_us(took_us)))
    if (keep := keep_all_of(plan)) is not None:
        took = f"{format_us(keep.step_us_predicted)}, {format_bytes(keep.arena_bytes)}"
        cards.append((f"keeping everything on {keep.device}, predicted", took))
    shown = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in cards)
    proof = escape(" ".join(found.proof))
    message = plan.result.message
    said = " ".join(f"{one[:1].upper()}{one[1:]}." for one in message.split("; "))
    notes = f"<p>{escape(said)}</p>" if message else ""
    answers = "".join(_in_short(found))
    return f"<p>{_INTRODUCTION}</p><dl>{shown}</dl><p>{proof}</p>{notes}{answers}"


def _at_most(gap: float) -> str:
    return f"at most {100 * gap:.2f} %" if gap > 0 else "0 %, proven"


def _in_short(found: Explanation) -> Iterator[str]:
    """The questions that are asked first, each with an answer; the sections below have the rest."""
    yield "<h2>In short</h2>"
    for device in found.devices:
        name = escape(device.device)
        if not device.time_points:
            continue
        yield f"<h3>What is in the memory of {name} at the peak?</h3>"
        yield f"<p>{escape(peak_in_words(device.time_points))}</p>"
        price, value, unit = device.price, found.value, found.unit
        answers = [price_of_memory(price, value, unit)] if price else []
        if (bound := device.bound_price) is not None:
            answers.append(price_from_bound(bound, value, unit, is_alone=price is None))
        if any(answers):
            yield f"<h3>What would 10 % more memory of {name} buy?</h3>"
            yield f"<p>{escape(' '.join(answers))}</p>"
    yield from _faster(found)
    treated = [one for one in found.tensors if one.fate.fate in (Fate.RECOMPUTED, Fate.MOVED)]
    if treated:
        yield "<h3>Why is a tensor recomputed or copied?</h3>"
        yield f"<p>{escape(treated_in_words(treated))} The largest:</p><ul>"
        weighed = [one for one in treated if one.alternatives is not None]
        for one in sorted(weighed, key=lambda tensor: -tensor.size_bytes)[:_MOST_IN_SHORT]:
            yield f"<li>{escape(tensor_in_words(one, found.unit))}</li>"
        yield "</ul>"


def _faster(found: Explanation) -> Iterator[str]:
    """What makes the step faster: another schedule, more memory, or a faster kernel."""
    if not found.speedups:
        return
    best, left = found.speedups[0], max(0.0, found.value - found.bound)
    gap = (
        "How much another schedule could save is not known."
        if found.gap is None
        else f"Another schedule saves at most {share_in_words(left, found.value, found.unit)}."
    )
    yield "<h3>What makes it faster?</h3>"
    yield f"<p>{escape(gap)} Of kernels and links, {escape(best.what)} comes first:"
    yield f" {100 * FASTER_RATIO:.0f} % faster, it saves"
    yield f" {escape(share_in_words(best.gain, found.value, found.unit))}.</p>"


def _memory(page: Page, story: Story) -> Iterator[str]:
    by = "".join(
        f'<label><input type="radio" name="by" value="{one}"{" checked" if one == "step" else ""}>'
        f" by {one}</label>"
        for one in _BY
    )
    yield f'<section><h2>Memory</h2><fieldset class="by"><legend>Horizontal axis</legend>{by}'
    yield "</fieldset>"
    for device in page.explanation.devices:
        yield f"<h3>{escape(device.device)}</h3><p>{escape(_budget(device))}</p>"
        if not device.arena_bytes:
            continue
        yield legend(story, device.device)
        for one in _BY:
            yield f'<figure class="by-{one}">{phases(story, one)}'
            yield memory_over_time(story, device.device, one)
            yield '<output class="under">Point at the picture, or use the arrow keys, Home and End.'
            yield "</output>"
            yield f"{arena_map(story, device.device, one)}<figcaption>Above: live bytes. Below: the"
            yield " arena, address against steps; a rectangle is a tensor. What the search of the table"
            yield " below finds is framed.</figcaption></figure>"
        yield from _peaks(device)
        if device.smallest is not None:
            yield f"<p>{escape(smallest_in_words(device.smallest))}</p>"
    yield "</section>"


def _front(found: Explanation) -> Iterator[str]:
    shown = [d for d in found.devices if any(one.value is not None for one in d.front)]
    if not shown:
        return
    yield f"<section><h2>{escape(found.objective.capitalize())} against budget</h2>"
    yield "<p>A circle is the best schedule found for its budget, counted in live bytes, in a short search"
    yield " that begins with the plan; a longer one may find better. No schedule whatsoever lies below the"
    yield " dashed line. Between two budgets that were tried, what was found for the smaller one fits, and"
    yield " what is proven of the larger one holds. The other budgets are as planned. The vertical axis does"
    yield " not begin at zero.</p>"
    yield '<ul class="legend"><li><i class="key-best"></i>best found</li><li><i class="key-bound"></i>'
    yield 'bound</li><li><i class="key-budget"></i>planned budget</li></ul>'
    for device in shown:
        points, name, budget = device.front, device.device, device.budget_bytes
        yield f"<h3>{escape(name)}</h3><div class='tables'><figure class='front-figure'>"
        yield f"{front_picture(points, name, budget, found.unit)}</figure>"
        yield from front_table(points, budget, found.unit)
        yield "</div>"
    yield "</section>"


def _graph(story: Story) -> Iterator[str]:
    layers = Layers(story.memory)
    yield "<section><h2>Graph</h2><p>Boxes are layers, coloured by the device that runs them; what"
    yield " belongs to none, such as the batch, is in the box “no layer”. A line is"
    yield " as thick as the tensors that it stands for are large, and coloured by what happens to them."
    yield f"</p>{legend_of_layers(layers)}<figure>{graph_of_layers(layers)}</figure>"
    yield from ops_by_layer(layers)
    yield "</section>"


def _budget(device: DeviceFinding) -> str:
    arena = format_bytes(device.arena_bytes)
    if not device.arena_bytes:
        return "The plan stores nothing there."
    if device.budget_bytes >= UNLIMITED_BYTES:
        return f"No budget. The arena takes {arena}."
    share = 100 * device.arena_bytes / device.budget_bytes
    return (
        f"Budget {format_bytes(device.budget_bytes)}. The arena takes {arena}, {share:.1f} % of it."
    )


def _peaks(device: DeviceFinding) -> Iterator[str]:
    for point in device.time_points:
        binds = (
            " This binds: not everything that is dropped or elsewhere then would fit."
            if point.binds
            else ""
        )
        yield (
            f"<details><summary>{format_bytes(point.live_bytes)} at"
            f" {escape(during_in_words(point))}</summary>"
            f"<p>{format_bytes(max(0, point.room_bytes))} left.{binds}</p><div class='tables'>"
        )
        layers = {name or "no layer": size for name, size in point.layer_bytes.items()}
        held = {one.label: one.size_bytes for one in point.largest}
        for head, rows in (("category", point.category_bytes), ("layer", layers), ("tensor", held)):
            cells = "".join(
                f"<tr><td>{escape(name)}</td><td>{format_bytes(size)}</td></tr>"
                for name, size in rows.items()
            )
            yield f"<table><thead><tr><th>{head}</th><th>bytes</th></tr></thead>"
            yield f"<tbody>{cells}</tbody></table>"
        yield "</div></details>"


def _timeline(page: Page, story: Story) -> Iterator[str]:
    side_by_side = page.explanation.objective == "makespan"
    how = "side by side" if side_by_side else "one step after the other"
    yield "<section><h2>Timeline</h2>"
    measured = (
        " Below it, what was measured in the last step of the run." if page.measured_us else ""
    )
    yield f"<p>As planned, {how}.{measured} A bar has the colour of what the op makes.</p>"
    yield legend_of_bars(story)
    yield f"<figure>{''.join(timeline(story, page.measured_us))}</figure>"
    yield from _speedups(page.explanation)
    yield "</section>"


def _speedups(found: Explanation) -> Iterator[str]:
    yield f"<h3>What to speed up first</h3><p>What the {found.objective} gains where one of these"
    yield f" takes {100 * FASTER_RATIO:.0f} % less time.</p><div class='tables'><table><thead><tr>"
    yield "<th>op or link</th><th>runs</th><th>takes</th><th>gain</th></tr></thead><tbody>"
    for one in found.speedups:
        yield f"<tr><td>{breakable(one.what)} <small>{escape(one.place)}</small></td><td>{one.runs}</td>"
        yield f"<td>{format_us(one.busy_us)}</td><td>{format_amount(one.gain, found.unit)}</td></tr>"
    yield "</tbody></table></div>"


def _tensors(found: Explanation) -> Iterator[str]:
    yield '<section><h2>Tensors</h2><label class="search">Search <input type="search" id="search"'
    yield ' placeholder="name, layer, category or fate"></label><p id="count" aria-live="polite"></p>'
    yield '<div class="tables"><table id="tensors"><thead><tr><th>tensor</th><th>size</th><th>fate</th>'
    yield "<th>why</th></tr></thead><tbody>"
    for one in sorted(found.tensors, key=lambda tensor: -tensor.size_bytes):
        why = why_in_words(one, found.unit)
        places = " ".join(filter(None, (one.layer, one.line)))
        layer = f"<small>{escape(places)}</small>" if places else ""
        yield (
            f'<tr data-name="{escape(one.label)}"><td><i class="{class_of(one.category)}"></i>'
            f"{breakable(one.label)} {layer}<small>{escape(one.category)}</small></td>"
            f"<td>{format_bytes(one.size_bytes)} <small>{format_type(one.shape, one.dtype)}</small></td>"
            f"<td>{escape(fate_in_words(one.fate))}</td>"
            f"<td>{escape(why)}</td></tr>"
        )
    yield "</tbody></table></div></section>"


def _data(story: Story) -> str:
    """What the script looks up under the pointer."""
    document = {
        "steps": [
            f"{story.described(k)}, {format_us(stop - begin)} from {format_us(begin)}"
            for k, (begin, stop) in enumerate(story.intervals_us)
        ],
        "edges": {by: [round(at, 1) for at in story.edges(by)] for by in _BY},
        "blocks": [
            [one.device, one.label, one.category, one.size_bytes, one.first, one.last, one.kind]
            for one in story.blocks
        ],
    }
    # A tag inside a name must not end the script element.
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")


def _own(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
