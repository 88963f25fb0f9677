"""Decisions that wait for a search to begin rounds from them."""

from __future__ import annotations

from collections import deque

from tvm_xengine.solvers.local_search.compiled.decisions import Decisions

_MOST_HINTS = 2
"""Suggestions that wait. More would be worked through long after a better relaxation has been solved;
with one alone, a solution in another order that comes right after would replace it unseen."""


class Hints:
    """The newest suggestions of relaxations; older ones are dropped, as those relaxations were worse.

    One thread may put while another takes.
    """

    def __init__(self) -> None:
        self._waiting: deque[Decisions] = deque(maxlen=_MOST_HINTS)

    def put(self, decisions: Decisions) -> None:
        """Add a suggestion."""
        self._waiting.append(decisions)

    def take(self) -> Decisions | None:
        """The newest suggestion, once; None without one."""
        try:
            return self._waiting.pop()
        except IndexError:
            return None

    def __bool__(self) -> bool:
        """Whether `take` has something."""
        return bool(self._waiting)
