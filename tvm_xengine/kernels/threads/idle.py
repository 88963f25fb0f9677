"""Whether threads spin or sleep while they wait for the next kernel."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from threading import Event, Lock, Thread, local
from time import monotonic
from types import TracebackType

import tvm

from tvm_xengine.kernels.threads.pool import thread_pool_size
from tvm_xengine.kernels.threads.team import gather, openmp

LINGER_S = 0.1
"""Steps that follow each other sooner share one team: starting one takes half a millisecond."""

STALLED_S = 1e-3
"""Threads wake within 0.2 ms on cores that are free, and after 3 to 20 ms on cores that others use."""

FIRST_REST_S, LONGEST_REST_S = 0.25, 4.0
"""A look whether cores are free again, which takes up to 20 ms, then costs at most a twelfth of the
time, and while they stay taken half a hundredth."""


class ThreadsThatSleep:
    """While it is entered, and a moment longer, threads of GNU's OpenMP wait asleep.

    By default they spin for some 10 ms after their work, which only ``OMP_WAIT_POLICY`` changes, and
    only before OpenMP is loaded; PyTorch, which TVM imports where it is installed, may have loaded
    it. But they give up at once while there are more of them than cores (``gomp_throttled_spin_count``
    in libgomp's ``wait.h``). So a team larger than the machine is started, which sleeps, and ended
    when no call has entered for a moment: PyTorch's own operators are faster with threads that spin.

    It may be entered by several threads, and again while it is entered.

    Parameters
    ----------
    openmp
        A library whose functions include those of OpenMP.
    linger_s
        How long the team stays after the last call has left.
    """

    def __init__(self, openmp: ctypes.CDLL, linger_s: float = LINGER_S) -> None:
        self._openmp = openmp
        self._linger_s = linger_s
        self._lock = Lock()
        self._inside = 0
        self._left_at = 0.0
        self._team: Thread | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._team is not None:
                return
            started = Event()
            self._team = Thread(
                target=self._stay, args=(started,), name="tvm_xengine idle OpenMP team", daemon=True
            )
            self._team.start()
        started.wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside -= 1
            self._left_at = monotonic()

    def _stay(self, started: Event) -> None:
        # GOMP_parallel runs a function of one pointer on every thread; this one does nothing.
        nothing = ctypes.cast(self._openmp.omp_get_thread_num, ctypes.c_void_p)
        threads = ctypes.c_uint(int(self._openmp.omp_get_num_procs()) + 1)
        self._openmp.GOMP_parallel(nothing, None, threads, ctypes.c_uint(0))
        started.set()
        pause = Event()  # never set
        while (rest_s := self._rest_s()) > 0:
            pause.wait(rest_s)

    def _rest_s(self) -> float:
        """How long the team stays at least; at 0 it is given up, and ends with this thread."""
        with self._lock:
            if self._inside:
                return self._linger_s
            rest_s = self._left_at + self._linger_s - monotonic()
            if rest_s <= 0:
                self._team = None
            return rest_s


def while_kernels_run(
    modules: Iterable[tvm.runtime.Module], *, in_turn: bool, parallel: bool
) -> AbstractContextManager[None]:
    """To be entered, as often as one likes, while kernels run.

    The team of OpenMP is ready at once for kernels that run one after the other. It sleeps between
    them where other threads have work meanwhile, or where generated code runs on TVM's pool because
    it was compiled in this process (`load_library`).

    Parameters
    ----------
    modules
        The kernels.
    in_turn
        Whether nothing else of this step runs beside a kernel.
    parallel
        Whether any kernel runs on several threads.
    """
    if not parallel:
        return nullcontext()
    on_team = all(module.kind == "library" for module in modules)
    ready = in_turn and on_team and openmp() is not None
    return _Running(_ready() if ready else _sleeping())


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
        self._asleep: list[bool] = []
        self._team: tuple[int, ...] = ()
        self._core = -1

    def __enter__(self) -> None:
        rests = monotonic() < self._rests_until_s or not self._are_ready()
        if rests:
            self._sleeping.__enter__()
        self._asleep.append(rests)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._asleep.pop():
            self._sleeping.__exit__(kind, error, trace)

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


class _Running:
    def __init__(self, waiting: AbstractContextManager[None]) -> None:
        self._waiting = waiting

    def __enter__(self) -> None:
        thread_pool_size()  # TVM has a pool for each thread that runs kernels
        self._waiting.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._waiting.__exit__(kind, error, trace)


@cache
def _ready() -> ReadyThreads:
    """One for the process, which knows the team of each thread."""
    return ReadyThreads(gather, _sleeping())


@cache
def _sleeping() -> AbstractContextManager[None]:
    """One for the process, as the team that never spins is."""
    team = openmp()
    return nullcontext() if team is None else ThreadsThatSleep(team)


def _core() -> int:
    """The core that the calling thread is on."""
    return int(_LIBC.sched_getcpu())


_LIBC = ctypes.CDLL(None)
