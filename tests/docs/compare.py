"""Whether a command printed what a page shows.

Numbers, their units and the widths of columns depend on the machine, so only the words are
compared. ``...`` stands for any text, and alone on a line for any lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = r"(?<![A-Za-z_])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_UNIT = r"(?: ?(?:us|ms|s|B|KiB|MiB|GiB|bytes|%))?(?![A-Za-z])"


def normal(line: str) -> str:
    """A line without its numbers and widths."""
    line = re.sub(_NUMBER + _UNIT, "0", line)
    line = re.sub(r"[─━]+", "─", line)
    return " ".join(line.split())


def shows(shown: Sequence[str], printed: str) -> bool:
    """Whether `printed` is what the lines `shown` say."""
    wanted = [normal(line) for line in shown if normal(line)]
    text = "\n".join(line for line in map(normal, printed.splitlines()) if line)
    pattern = ""
    for line in wanted:
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
    return re.fullmatch(pattern, text + "\n" if text else "") is not None
