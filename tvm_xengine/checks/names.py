"""Lists of names in messages: not too many, and those first that may have been meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

MOST_NAMED = 12
"""So many names stand in a message; large networks have hundreds."""


def some(names: Iterable[str], most: int = MOST_NAMED) -> str:
    """Names for a message, with the number of those that are left out."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{', '.join(every[:most])}{more}"


def meant(name: str, names: Iterable[str]) -> str:
    """The end of a message on an unknown name: ``; did you mean lenet?``, or nothing."""
    known = {one.casefold(): one for one in names}
    close = get_close_matches(name.casefold(), known, 1)
    return f"; did you mean {known[close[0]]}?" if close else ""


def closest_first(names: Iterable[str], pattern: str) -> list[str]:
    """Names in the order of their likeness to a pattern of a shell; equal ones stay in order."""
    letters = re.sub(r"[*?\[\]!]", "", pattern).casefold()
    return sorted(dict.fromkeys(names), key=lambda name: -_likeness(letters, name.casefold()))


def _likeness(letters: str, name: str) -> float:
    """How much of `letters` stands in `name`, and, with half the weight, how much else does not.

    A pattern usually says less than a name does: ``conv*`` is closer to ``conv2_weight`` than to
    ``gone``, which the ratio of the two whole texts reverses.
    """
    same = sum(
        block.size for block in SequenceMatcher(None, letters, name, False).get_matching_blocks()
    )
    return same / max(len(letters), 1) + 0.5 * same / max(len(name), 1)
