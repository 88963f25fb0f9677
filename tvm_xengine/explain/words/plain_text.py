"""Tables and sentences as plain text."""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS = 80
"""The width of a terminal that nobody has widened."""


def plain_text(shown: Iterable[RenderableType]) -> str:
    """The text of what `rich` shows, one below the other, without colour."""
    from rich.console import Console

    out = StringIO()
    Console(file=out, width=_COLUMNS, color_system=None, highlight=False).print(*shown, sep="\n")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
