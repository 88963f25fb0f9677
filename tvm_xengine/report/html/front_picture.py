"""Time against budget as a picture, and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tvm_xengine.explain.prices.front import FrontPoint
from tvm_xengine.report.html.svg import attributes, picture
from tvm_xengine.scheduling.durations import format_amount
from tvm_xengine.scheduling.sizes import format_bytes

_WIDTH, _HEIGHT, _EDGE = 360.0, 180.0, 16.0
"""Units of the picture: as wide as a phone; room for the markers and the labels at its edges."""
_MORE_RATIO, _LEAST_SHARE = 1.2, 0.05
"""The vertical axis ends at the highest value and is so many times as long as all values take, but no
shorter than this share of the highest, so that a difference of a thousandth does not look like half."""


def front_picture(points: Sequence[FrontPoint], device: str, budget_bytes: int, unit: str) -> str:
    """Best value found and proven bound over the budget, which is marked."""
    sizes = [one.budget_bytes for one in points]
    values = [one.value for one in points if one.value is not None]
    lowest = min([*values, *(one.bound for one in points if one.bound > 0)])
    high = max([*values, *(one.bound for one in points)])
    low = max(0.0, high - max(_MORE_RATIO * (high - lowest), _LEAST_SHARE * high))
    span, room = max(1, max(sizes) - min(sizes)), max(high - low, 1e-12)

    def at(size: float, value: float) -> tuple[float, float]:
        x = _EDGE + (_WIDTH - 2 * _EDGE) * (size - min(sizes)) / span
        return x, 2 * _EDGE + (_HEIGHT - 4 * _EDGE) * (1 - (max(value, low) - low) / room)

    x, _ = at(budget_bytes, low)
    parts = [f"<line{attributes(x1=x, y1=_EDGE, x2=x, y2=_HEIGHT - 2 * _EDGE, class_='budget')}/>"]
    proven = [at(one.budget_bytes, one.bound) for one in points]
    best = [at(one.budget_bytes, v) for one in points if (v := one.value) is not None]
    # A bound for more memory holds for less, and what fits in less memory fits in more.
    parts.append(f'<path class="bound" d="{_stairs(proven, holds_for_less=True)}"/>')
    parts.append(f'<path class="best" d="{_stairs(best, holds_for_less=False)}"/>')
    parts += _axes(min(sizes), max(sizes), format_amount(low, unit), format_amount(high, unit))
    for one in points:
        if one.value is None:
            continue
        px, py = at(one.budget_bytes, one.value)
        title = f"{format_bytes(one.budget_bytes)}: {format_amount(one.value, unit)}"
        place = attributes(cx=px, cy=py, r=4)
        parts.append(f"<circle{place}><title>{escape(title)}</title></circle>")
    label = f"Best value found and proven bound over the budget of {device}"
    return picture(label, _HEIGHT, parts, _WIDTH, class_="front")


def _stairs(places: Sequence[tuple[float, float]], *, holds_for_less: bool) -> str:
    """The path of a step function, whose values hold to the left or to the right of their places."""
    (x, y), *others = places
    path = [f"M{x:.1f} {y:.1f}"]
    for x, y in others:
        path.append(f"V{y:.1f}H{x:.1f}" if holds_for_less else f"H{x:.1f}V{y:.1f}")
    return "".join(path)


def _axes(least_bytes: int, most_bytes: int, low: str, high: str) -> Iterator[str]:
    """What the edges of the picture mean: the objective upwards, the budget to the right."""
    for text, x, y, anchor in (
        (high, 4.0, _EDGE - 4, "start"),
        (low, 4.0, _HEIGHT - _EDGE - 4, "start"),
        (f"budget {format_bytes(least_bytes)}", 4.0, _HEIGHT - 4, "start"),
        (format_bytes(most_bytes), _WIDTH - 4, _HEIGHT - 4, "end"),
    ):
        yield f"<text{attributes(x=x, y=y, text_anchor=anchor, class_='head')}>{text}</text>"


def front_table(points: Sequence[FrontPoint], budget_bytes: int, unit: str) -> Iterator[str]:
    """A row for each budget."""
    yield "<table><thead><tr><th>budget</th><th>best found</th><th>bound</th></tr></thead><tbody>"
    for one in points:
        planned = " (planned)" if one.budget_bytes == budget_bytes else ""
        best = "none found" if one.value is None else format_amount(one.value, unit)
        bound = format_amount(one.bound, unit) if one.bound > 0 else "none"
        yield f"<tr><td>{format_bytes(one.budget_bytes)}{planned}</td><td>{best}</td><td>{bound}</td></tr>"
    yield "</tbody></table>"
