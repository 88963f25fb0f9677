"""Time against budget as a picture, and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tvm_xengine.explain.prices.front import FrontPoint
from tvm_xengine.explain.words.sentences import amount_in_words
from tvm_xengine.report.html.svg import attributes, picture
from tvm_xengine.scheduling.sizes import format_bytes

_WIDTH, _HEIGHT, _EDGE = 360.0, 170.0, 12.0
"""Units of the picture: as wide as a phone; room for the markers at its edges."""
_LOWEST_SHARE = 0.9
"""The vertical axis begins at this share of the lowest bound; it says so, since it is not at zero."""


def front_picture(points: Sequence[FrontPoint], device: str, budget_bytes: int, unit: str) -> str:
    """Best value found and proven bound over the budget, which is marked."""
    sizes = [one.budget_bytes for one in points]
    values = [one.value for one in points if one.value is not None]
    low = _LOWEST_SHARE * min([one.bound for one in points if one.bound > 0] or values)
    high = max([*values, *(one.bound for one in points)])
    span, room = max(1, max(sizes) - min(sizes)), max(high - low, 1e-12)

    def at(size: float, value: float) -> tuple[float, float]:
        x = _EDGE + (_WIDTH - 2 * _EDGE) * (size - min(sizes)) / span
        return x, _EDGE + (_HEIGHT - 2 * _EDGE) * (1 - (max(value, low) - low) / room)

    x, _ = at(budget_bytes, low)
    parts = [f"<line{attributes(x1=x, y1=0, x2=x, y2=_HEIGHT, class_='budget')}/>"]
    for class_, pairs in (
        ("bound", [(one.budget_bytes, one.bound) for one in points]),
        ("best", [(one.budget_bytes, v) for one in points if (v := one.value) is not None]),
    ):
        places = [at(*pair) for pair in pairs]
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in places)
        parts.append(f'<path class="{class_}" d="M{path}"/>')
    for one in points:
        if one.value is None:
            continue
        px, py = at(one.budget_bytes, one.value)
        title = f"{format_bytes(one.budget_bytes)}: {amount_in_words(one.value, unit)}"
        place = attributes(cx=px, cy=py, r=4)
        parts.append(f"<circle{place}><title>{escape(title)}</title></circle>")
    label = f"Best value found and proven bound over the budget of {device}"
    return picture(label, _HEIGHT, parts, _WIDTH, class_="front")


def front_table(points: Sequence[FrontPoint], budget_bytes: int, unit: str) -> Iterator[str]:
    """A row for each budget."""
    yield "<table><thead><tr><th>budget</th><th>best found</th><th>bound</th></tr></thead><tbody>"
    for one in points:
        planned = " (planned)" if one.budget_bytes == budget_bytes else ""
        best = "none found" if one.value is None else amount_in_words(one.value, unit)
        bound = amount_in_words(one.bound, unit) if one.bound > 0 else "none"
        yield f"<tr><td>{format_bytes(one.budget_bytes)}{planned}</td><td>{best}</td><td>{bound}</td></tr>"
    yield "</tbody></table>"
