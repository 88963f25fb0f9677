"""The board: written by the loop only, read by workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.local_search.hints import Hints
from tvm_xengine.solvers.portfolio.events import Post
from tvm_xengine.solvers.portfolio.options import DEFAULTS, PortfolioOptions
from tvm_xengine.solvers.request import Request


@dataclass
class Board:
    """The state of the solve after the last event that the loop has handled.

    Attributes
    ----------
    best
        (value, schedule) of the best schedule so far, replaced as a whole; None without one.
    is_proving
        Whether better bounds may still come.
    is_narrow
        Whether the best schedule is proven for some schedules only, and one outside may be much better.
    hints
        What relaxations suggest to the search.
    stop
        Set once the workers are to end.
    """

    best: tuple[float, Schedule] | None = None
    is_proving: bool = True
    is_narrow: bool = False
    hints: Hints = field(default_factory=Hints)
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Task:
    """What a worker is given.

    Attributes
    ----------
    board
        To read from.
    post
        To tell what was found; returns at once.
    others
        Lets the workers work that take turns with it: till all had as much, or at least once.
    """

    problem: Problem
    request: Request
    board: Board = field(default_factory=Board)
    post: Post = lambda _event: None
    options: PortfolioOptions = DEFAULTS
    others: Callable[[bool], None] = lambda _at_least_once: None

    @property
    def best(self) -> tuple[float, Schedule] | None:
        """(value, schedule) of the best schedule so far."""
        return self.board.best

    @property
    def is_over(self) -> bool:
        """Whether the worker is to end: the loop says so, or the solve was interrupted outside of it.

        Where workers take turns, the work that is counted says so, too.
        """
        if self.board.stop.is_set() or self.request.stop.is_set():
            return True
        return self.counts_work and self.request.is_over

    @property
    def counts_work(self) -> bool:
        """Whether workers take turns, and their work is counted."""
        return self.request.limits.clock.counts_work

    def rest(self, seconds: float) -> None:
        """Wait so long for others; where workers take turns, let them work."""
        if self.counts_work:
            self.others(True)
        else:
            self.board.stop.wait(seconds)
