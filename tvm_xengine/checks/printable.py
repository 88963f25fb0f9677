"""Names come from files of others, and must not steer a terminal."""

from __future__ import annotations

from unicodedata import category

_KEPT = "\n\t\u200c\u200d"
"""Lines, and what joins letters of some scripts."""


def printable(text: str) -> str:
    """The text with a mark for each character of control, or that turns the direction of writing."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if category(one) in ("Cc", "Cf") and one not in _KEPT else one
        for one in text
    )
