"""Threads that run the streams of a step side by side."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from queue import SimpleQueue

from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.threads.pool import thread_pool_size
from tvm_xengine.runtime.events import KEEP, SLEEP, WAIT, Events
from tvm_xengine.scheduling.platform import Platform, Stream


class StreamThreads:
    """One thread for each stream, which keeps the pool in which its kernels run.

    To start and to end a step takes some wake-ups of threads; with futures it took 250 us.

    Parameters
    ----------
    streams
        What each stream does in a step; they wait for each other by `events` only.
    cores
        For each stream the cores on which it runs; none are all that the process may use.
    settle
        Waits for what a stream has begun on another processor, a GPU, before events are used again.
    """

    def __init__(
        self,
        streams: Sequence[Callable[[], object]],
        events: Events,
        cores: Sequence[Collection[int]],
        settle: Callable[[], object] | None = None,
    ) -> None:
        self._events = events
        self._settle = settle or _nothing
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._threads = [
            _StreamThread(stream, own, self._ended, f"stream {k}")
            for k, (stream, own) in enumerate(zip(streams, cores, strict=True))
        ]
        for thread in self._threads:
            weakref.finalize(self, thread.stop)

    def run(self) -> None:
        """Run all streams to their ends.

        Raises
        ------
        Exception
            That of the first stream that failed, once no stream runs any more. The others go on
            without waiting then, so that what the arenas hold is undefined.
        """
        have_begun = False
        try:
            for thread in self._threads:
                thread.begin()
            have_begun = True
            self._wait_for_all()
        finally:  # after an interrupt, too, no stream may use the arenas any more
            self._end(have_begun)
        for thread in self._threads:
            if thread.error is not None:
                raise thread.error

    def _end(self, have_begun: bool) -> None:
        if not have_begun:
            self._events.release()
        self._wait_for_all()
        if not have_begun or self._has_failed:
            self._settle()
            self._events.reset()

    def _wait_for_all(self) -> None:
        """Wait until no stream runs; where one has failed, the others need not wait for it."""
        is_released = False
        while any(thread.is_running for thread in self._threads):
            self._ended.get()
            if self._has_failed and not is_released:
                self._events.release()
                is_released = True

    @property
    def _has_failed(self) -> bool:
        return any(thread.error is not None for thread in self._threads)


class _StreamThread:
    """A thread that runs its stream each time it is told to.

    Its own thread, because the pools of TVM and of OpenMP belong to the calling thread.

    Attributes
    ----------
    error
        With which the last run has ended; None where it has not failed.
    """

    def __init__(
        self,
        stream: Callable[[], object],
        cores: Collection[int],
        ended: SimpleQueue[None],
        name: str,
    ) -> None:
        self._stream: Callable[[], object] | None = stream
        self._cores, self._ended = cores, ended
        self._may_begin = threading.Lock()
        self._may_begin.acquire()
        self.is_running, self.error = True, None
        threading.Thread(target=self._serve, name=name, daemon=True).start()
        while self.is_running:
            ended.get()  # one pool starts after the other
        if self.error is not None:
            raise self.error

    error: BaseException | None

    def begin(self) -> None:
        """Run the stream once."""
        self.is_running, self.error = True, None
        self._may_begin.release()

    def stop(self) -> None:
        """End the thread, which runs nothing now."""
        self._stream = None
        self._may_begin.release()

    def _serve(self) -> None:
        self._take(partial(_start, self._cores))
        while True:
            self._may_begin.acquire()
            if self._stream is None:
                return
            self._take(self._stream)

    def _take(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self.error = error
        self.is_running = False
        self._ended.put(None)


def _start(cores: Collection[int]) -> None:
    """Bind the thread, and with it the pools that it starts, to its cores."""
    if cores:
        os.sched_setaffinity(0, cores)
    thread_pool_size()


def _nothing() -> None:
    pass


def free_cores(platform: Platform) -> set[int]:
    """The cores of this process on which no device computes; one without `cores` uses all there are."""
    usable = os.sched_getaffinity(0)
    return usable.difference(*(device.cores or usable for device in platform.computing))


def ways_to_wait(streams: Sequence[Stream], cores: Sequence[Collection[int]]) -> list[str]:
    """The function of `event_functions` by which each stream waits for the others.

    One whose cores no other uses keeps them. A link for which none is left gives way to all.

    Parameters
    ----------
    cores
        Of each stream, and then of further threads; none are all that the process may use.
    """
    ways = []
    for stream, own in zip(streams, cores, strict=False):
        sharing = [other for other in cores if not other or not set(own).isdisjoint(other)]
        if len(stream) > 1:
            ways.append(WAIT if own else SLEEP)
        else:
            ways.append(KEEP if own and len(sharing) == 1 else WAIT)
    return ways


def check_cores(platform: Platform) -> None:
    """Raise `InvalidPlatformError` where a device names a core that the process may not use."""
    usable = os.sched_getaffinity(0)
    for device in platform.devices:
        if missing := [core for core in device.cores if core not in usable]:
            raise InvalidPlatformError(
                f"device {device.name}: expected cores among {sorted(usable)}, got {missing[0]}"
            )
