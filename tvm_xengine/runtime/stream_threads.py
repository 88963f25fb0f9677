"""Threads that run the streams of a step side by side."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.thread_pool import thread_pool_size
from tvm_xengine.runtime.events import KEEP, SLEEP, WAIT, Events
from tvm_xengine.scheduling.platform import Platform, Stream


class StreamThreads:
    """One thread for each stream, which keeps the pool in which its kernels run.

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
        self._streams = streams
        self._events = events
        self._settle = settle or _nothing
        # A pool of one thread each: the pools of TVM and of OpenMP belong to the calling thread.
        self._threads = [
            ThreadPoolExecutor(1, f"stream {k}", _start, (own,)) for k, own in enumerate(cores)
        ]
        for threads in self._threads:
            weakref.finalize(self, threads.shutdown, wait=False)
            threads.submit(_nothing).result()  # one pool starts after the other

    def run(self) -> None:
        """Run all streams to their ends.

        Raises
        ------
        Exception
            That of the first stream that failed, once no stream runs any more. The others go on
            without waiting then, so that what the arenas hold is undefined.
        """
        running = [
            threads.submit(stream)
            for threads, stream in zip(self._threads, self._streams, strict=True)
        ]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:  # after an interrupt, too, no stream may use the arenas any more
            self._end(running)
        for one in running:
            one.result()

    def _end(self, running: Sequence[Future[object]]) -> None:
        wait(running, return_when=FIRST_EXCEPTION)
        if any(one.done() and one.exception() is not None for one in running):
            self._events.release()
            wait(running)
            self._settle()
            self._events.reset()
        else:
            wait(running)


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
