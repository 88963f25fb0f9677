"""Which processes still run, however long one of them plans or compiles while the others wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tvm_xengine import errors
from tvm_xengine.errors import RankLostError, XEngineError

_BEATS = 5
"""A process counts so often in the time limit: one beat may be late on a busy machine, four may not."""
_LOOK_S = 0.005
"""How often a process looks whether the others have come, while it waits for them."""
_CLOSE_S = 1.0
"""What the thread may take to end: far more than a turn, and little where the store does not answer."""
_BUSY_RATIO = 0.05
"""A process that uses less processor time than this waits: counting takes a thousandth of that."""


class Attendance:
    """A meeting point of processes that notices one which hangs.

    A thread of each process counts in a store that all share. While one waits for the others, a process
    whose count does not move for the time limit has ended or hangs; one that only takes long counts on.

    Parameters
    ----------
    store
        Of torch.distributed; another thread may use it, too.
    limit_s
        How long a process may be silent.
    """

    def __init__(self, store: Any, rank: int, size: int, limit_s: float) -> None:
        self._store = store
        self._rank, self._size, self._limit_s = rank, size, limit_s
        self._called = threading.Event()
        self._wanted = self._told = self._met = 0
        self._failures: dict[int, str] = {}  # of this process, by meeting
        self._failed: XEngineError | None = None
        self._release: Callable[[], None] | None = None
        self._waits_since_s = now_s = time.monotonic()
        self._busy_s = time.process_time()
        self._looked_s = now_s
        self._moved_s = dict.fromkeys(self._others, now_s)
        self._counts = dict.fromkeys(self._others, b"")
        self._ends = False
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Count no more. A thread inside of torch while the interpreter ends would abort the process."""
        self._ends = True
        self._called.set()
        self._thread.join(_CLOSE_S)

    def meet(self) -> None:
        """Collective: wait until all processes have come here, as long as it takes.

        Raises
        ------
        RankLostError
            If one of them has not counted for the time limit; names it.
        XEngineError
            If one of them has failed on its way here (:meth:`fail`): the same error, with its number.
        """
        waits_since_s = turn_s = time.monotonic()
        self._wanted += 1
        self._called.set()
        while self._met < self._wanted:
            time.sleep(_LOOK_S)
            last_turn_s, turn_s = turn_s, time.monotonic()
            if turn_s - last_turn_s > self._limit_s / 2:  # this one was stopped, too
                waits_since_s = turn_s
            if turn_s - max(waits_since_s, self._looked_s) > 2 * self._limit_s:
                raise _lost("another rank", self._limit_s)  # it holds the store's lock
            for rank, moved_s in self._moved_s.items():
                if self._looked_s - max(waits_since_s, moved_s) > self._limit_s:
                    raise _lost(f"rank {rank}", self._limit_s)
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    @contextmanager
    def watching(self, release: Callable[[], None]) -> Iterator[None]:
        """Raise `RankLostError` for a process that is lost while this one waits for it inside.

        Parameters
        ----------
        release
            Ends the wait; another thread calls it.
        """
        self._waits_since_s = time.monotonic()
        self._release = release
        try:
            yield
        finally:
            self._release = None
        if isinstance(self._failed, RankLostError):
            raise self._failed

    def fail(self, error: Exception) -> None:
        """Take part in the next meeting by telling the others why this process cannot come."""
        self._failures[self._wanted + 1] = f"{type(error).__name__}: {error}"
        self._wanted += 1
        self._called.set()
        began_s = time.monotonic()
        while self._told < self._wanted and time.monotonic() - began_s < self._limit_s:
            time.sleep(_LOOK_S)  # a process that ends now must have told it

    @property
    def silent(self) -> int | None:
        """Who has not counted for the longest time, at least half of the time limit; None if all do."""
        rank = min(self._moved_s, key=self._moved_s.__getitem__, default=None)
        if rank is None or time.monotonic() - self._moved_s[rank] < self._limit_s / 2:
            return None
        return rank

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(self._size) if rank != self._rank]

    def _count(self) -> None:
        """What the thread does: count, look at the counts of others, and see whether all have come."""
        period_s = self._limit_s / _BEATS
        next_s = 0.0
        try:
            while not self._ends:
                if time.monotonic() >= next_s:
                    self._store.add(_beats_of(self._rank), 1)
                    self._look()
                    next_s = time.monotonic() + period_s
                    self._watch(period_s)
                if self._wanted > self._told:
                    self._called.clear()
                    meeting = self._told + 1
                    self._store.set(_place(meeting, self._rank), self._failures.pop(meeting, ""))
                    self._told = meeting
                places = [_place(self._told, rank) for rank in range(self._size)]
                if self._met < self._told and self._store.check(places):
                    self._failed = self._failure(self._told)
                    self._met = self._told
                waits = self._met < self._told
                self._called.wait(_LOOK_S if waits else max(next_s - time.monotonic(), 0))
        except RuntimeError:
            # The process with the store has ended; who waits finds that nobody counts.
            self._let_go("another rank")

    def _watch(self, period_s: float) -> None:
        """End the wait for a process that does not count, or that keeps this one waiting for too long."""
        now_s, busy_s = time.monotonic(), time.process_time()
        if busy_s - self._busy_s > _BUSY_RATIO * period_s:
            self._waits_since_s = now_s
        self._busy_s = busy_s
        silent = [r for r, at_s in self._moved_s.items() if now_s - at_s > self._limit_s]
        if silent:
            self._let_go(f"rank {silent[0]}")
        elif now_s - self._waits_since_s > self._limit_s:
            self._let_go("another rank")

    def _let_go(self, who: str) -> None:
        release = self._release
        if release is not None:
            self._failed = _lost(who, self._limit_s)
            release()

    def _failure(self, meeting: int) -> XEngineError | None:
        """What another process has failed with on its way to a meeting."""
        for rank in self._others:
            if said := self._store.get(_place(meeting, rank)).decode(errors="replace"):
                name, _, reason = said.partition(": ")
                return _as_error(name, f"rank {rank} has failed: {reason}")
        return None

    def _look(self) -> None:
        if time.monotonic() - self._looked_s > self._limit_s / 2:  # this one was stopped, too
            self._moved_s = dict.fromkeys(self._others, time.monotonic())
            self._waits_since_s = time.monotonic()
        for rank in self._others:
            beats = _beats_of(rank)
            count = self._store.get(beats) if self._store.check([beats]) else b""
            if count != self._counts[rank]:
                self._counts[rank], self._moved_s[rank] = count, time.monotonic()
        self._looked_s = time.monotonic()


def _lost(who: str, limit_s: float) -> RankLostError:
    return RankLostError(
        f"{who} has ended or hangs: it gave no sign of life for {limit_s:g} s. Resume from the last"
        " checkpoint"
    )


def _as_error(name: str, message: str) -> XEngineError:
    """An error of this package by its name; that a rank is lost where it is none, or takes more words."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, XEngineError):
        try:
            return kind(message)
        except TypeError:
            return RankLostError(message)
    return RankLostError(f"{message} ({name})")


def _beats_of(rank: int) -> str:
    return f"beats/{rank}"


def _place(meeting: int, rank: int) -> str:
    return f"meeting/{meeting}/{rank}"
