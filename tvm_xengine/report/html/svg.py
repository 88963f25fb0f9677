"""Small pieces of SVG: numbers, rectangles, steps, and axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

WIDTH = 1000.0
"""Width of every picture in its own units; it is scaled to the width of the page."""


def number(value: float) -> str:
    """A coordinate: a tenth of a unit is less than a pixel on any screen."""
    return f"{value:.1f}".removesuffix(".0")


def attributes(**values: float | str) -> str:
    """Attributes of an element; ``class_`` is written ``class``, ``data_t`` is ``data-t``."""
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="'
        f'{number(value) if isinstance(value, int | float) else escape(value)}"'
        for name, value in values.items()
    )


def rectangle(x: float, y: float, width: float, height: float, title: str, **more: str) -> str:
    """A rectangle that says `title` under the pointer."""
    place = attributes(x=x, y=y, width=width, height=height, **more)
    return f"<rect{place}><title>{escape(title)}</title></rect>"


def stairs(edges: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> str:
    """The path of an area between two step functions with a value between every two edges."""
    path = [f"M{number(edges[0])} {number(upper[0])}"]
    path += _run(upper[0], zip(edges[1:], [*upper[1:], None], strict=True))
    path.append(f"V{number(lower[-1])}")
    path += _run(lower[-1], zip(reversed(edges[:-1]), [*reversed(lower[:-1]), None], strict=True))
    return "".join(path) + "Z"


def _run(from_y: float, corners: Iterable[tuple[float, float | None]]) -> list[str]:
    """Lines to each x, and there to the next y; corners on a straight line are left out."""
    found: list[str] = []
    last_y = number(from_y)
    for x, y in corners:
        following = None if y is None else number(y)
        if following is not None and following == last_y:
            continue
        found.append(f"H{number(x)}" + ("" if following is None else f"V{following}"))
        last_y = last_y if following is None else following
    return found


def line(x1: float, y1: float, x2: float, y2: float, **more: str) -> str:
    """A straight line."""
    return f"<line{attributes(x1=x1, y1=y1, x2=x2, y2=y2, **more)}/>"


def picture(
    label: str, height: float, parts: Iterable[str], width: float = WIDTH, /, **more: str
) -> str:
    """An SVG element that screen readers know by its label; an image where it has no other role."""
    box = f"0 0 {number(width)} {number(height)}"
    head = attributes(**{"viewBox": box, "role": "img", "aria_label": label, **more})
    return f"<svg{head}>{''.join(parts)}</svg>"
