"""Threads of OpenMP that sleep while they wait for the next kernel."""

from __future__ import annotations

import ctypes
from threading import Event, Lock, Thread
from time import monotonic
from types import TracebackType

LINGER_S = 0.1
"""Steps that follow each other sooner share one team: starting one takes half a millisecond."""


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
