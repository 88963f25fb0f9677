"""Threads of OpenMP that spin while they wait for the next kernel, on cores that nothing else wants."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from threading import local
from time import monotonic

STALLED_S = 1e-3
"""Threads wake within 0.2 ms on cores that are free, and after 3 to 20 ms on cores that others use."""

FIRST_REST_S, LONGEST_REST_S = 0.05, 4.0
"""A look whether cores are free again may take 20 ms: while they stay taken, half a hundredth of the time."""


class ReadyThreads(local):
    """While it is entered, the threads of OpenMP spin, as long as they have the cores for themselves.

    Two threads that wait for one another by spinning on one core do so for 10 ms in vain. Linux wakes a
    thread on the core of the one that calls it, if it was there before, so the threads of a team stay
    off the core of their caller. Where other processes want the cores, every parallel loop may take that
    long. The way into this object is such a loop: if it takes longer than a thread needs to wake,
    threads sleep for a while, and longer each time.

    Parameters
    ----------
    gather
        Wakes all threads of the caller's team, and returns their numbers when they have run.
    sleeping
        To be entered while threads sleep.
    """

    def __init__(
        self, gather: Callable[[], tuple[int, ...]], sleeping: AbstractContextManager[object]
    ) -> None:
        self._gather = gather
        self._sleeping = sleeping
        self._rests_until_s = 0.0
        self._rest_s = FIRST_REST_S
        self._team: tuple[int, ...] = ()
        self._core = -1

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While kernels run, one after the other."""
        rests = monotonic() < self._rests_until_s or not self._are_ready()
        with self._sleeping if rests else nullcontext():
            yield

    def _are_ready(self) -> bool:
        if (core := _core()) != self._core:
            self._core = core
            self._leave_core()
        begin_s = monotonic()
        team = self._gather()
        end_s = monotonic()
        if team != self._team:
            self._team = team
            self._leave_core()
        if end_s - begin_s < STALLED_S:
            self._rest_s = FIRST_REST_S
            return True
        self._rests_until_s = end_s + self._rest_s
        self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
        return False

    def _leave_core(self) -> None:
        others = os.sched_getaffinity(0) - {self._core}
        for thread in self._team if others else ():
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, others)


def _core() -> int:
    """The core that the calling thread is on."""
    return int(_c_library().sched_getcpu())


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
