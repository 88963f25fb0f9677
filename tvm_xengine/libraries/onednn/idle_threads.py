"""Keeps the threads of OpenMP from spinning on cores that generated code needs."""

from __future__ import annotations

import ctypes
from functools import cache
from threading import Event, Thread


@cache
def let_threads_sleep(openmp: ctypes.CDLL) -> None:
    """Have threads of GNU's OpenMP wait asleep, soon after their work has ended.

    By default they spin for some 10 ms, which only ``OMP_WAIT_POLICY`` changes, and only before
    OpenMP is loaded; PyTorch, which TVM imports where it is installed, may have loaded it. But
    they give up at once while there are more of them than cores (``gomp_throttled_spin_count``
    in libgomp's ``wait.h``). So a team larger than the machine is started, which then sleeps for
    as long as the process lives.

    Parameters
    ----------
    openmp
        A library whose functions include those of OpenMP.
    """
    started, never = Event(), Event()

    def start_a_team() -> None:
        # GOMP_parallel runs a function of one pointer on every thread; this one does nothing.
        nothing = ctypes.cast(openmp.omp_get_thread_num, ctypes.c_void_p)
        threads = ctypes.c_uint(int(openmp.omp_get_num_procs()) + 1)
        openmp.GOMP_parallel(nothing, None, threads, ctypes.c_uint(0))
        started.set()
        never.wait()

    Thread(target=start_a_team, name="tvm_xengine idle OpenMP team", daemon=True).start()
    started.wait()
