"""Names that a narrow column breaks between their words."""

from __future__ import annotations

from html import escape


def breakable(name: str) -> str:
    """The name as HTML, with a place to break after each underscore."""
    return escape(name).replace("_", "_<wbr>")
