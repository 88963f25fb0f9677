"""What limits are counted by: the clocks of this machine, or work, which is the same on every machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class TimeSource(Protocol):
    """Tells how much of a limit is gone."""

    @property
    def counts_work(self) -> bool:
        """Whether time passes only by `worked`, so that limits end at the same point of every run."""
        ...

    def now_s(self) -> float:
        """Seconds from any origin."""
        ...

    def thread_s(self) -> float:
        """The same without what other threads and processes took, where that is known."""
        ...

    def process_s(self) -> float:
        """The same without what other processes took."""
        ...

    def worked(self, amount_s: float) -> None:
        """Tell of a piece of work, by what it takes on the nominal machine."""
        ...


class MachineTime:
    """The clocks of this machine."""

    counts_work = False

    def now_s(self) -> float:
        """Wall clock."""
        return time.perf_counter()

    def thread_s(self) -> float:
        """Processor time of this thread."""
        return time.thread_time()

    def process_s(self) -> float:
        """Processor time of this process."""
        return time.process_time()

    def worked(self, amount_s: float) -> None:
        """Nothing: the clocks see it."""


class CountedWork:
    """Work that was counted so far, in units of about a second of the machine on which they were set.

    Every part that takes long tells how many steps it made, times what one took there (AMD EPYC, Zen 3,
    one core): evaluations of the search, steps of greedy walks, ways to make room of A*, looks of HiGHS at
    its limits. A solve that only looks at this clock does the same on every machine.

    Parameters
    ----------
    on_worked
        Called after each piece of work.
    """

    counts_work = True

    def __init__(self, on_worked: Callable[[], None] = lambda: None) -> None:
        self._counted_s, self._on_worked = 0.0, on_worked

    def now_s(self) -> float:
        """Units so far."""
        return self._counted_s

    thread_s = now_s
    process_s = now_s

    def worked(self, amount_s: float) -> None:
        """Count it."""
        self._counted_s += amount_s
        self._on_worked()


MACHINE_TIME = MachineTime()


@dataclass(frozen=True)
class ThreadTime:
    """The time of one thread by another source, in which other threads do not count."""

    source: TimeSource = MACHINE_TIME

    @property
    def counts_work(self) -> bool:
        """As the source."""
        return self.source.counts_work

    def now_s(self) -> float:
        """Time of this thread."""
        return self.source.thread_s()

    thread_s = now_s

    def process_s(self) -> float:
        """As the source."""
        return self.source.process_s()

    def worked(self, amount_s: float) -> None:
        """As the source."""
        self.source.worked(amount_s)
