"""What is entered while kernels run, so that their threads spin or sleep between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import tvm

from tvm_xengine.kernels.threads.idle import ThreadsThatSleep
from tvm_xengine.kernels.threads.pool import thread_pool_size
from tvm_xengine.kernels.threads.ready import ReadyThreads
from tvm_xengine.kernels.threads.team import gather, openmp


def may_spin(modules: Iterable[tvm.runtime.Module]) -> bool:
    """Whether all parallel loops of compiled kernels run on the team of OpenMP (`load_library`).

    Those that were compiled in this process run on TVM's pool, whose threads it would keep from the cores.
    """
    return openmp() is not None and all(module.kind == "library" for module in modules)


@contextmanager
def while_kernels_run(*, spin: bool, parallel: bool) -> Iterator[None]:
    """Threads of OpenMP are ready for the next kernel, or sleep between kernels.

    Parameters
    ----------
    spin
        Whether they may be ready: nothing else of the step runs beside a kernel, and `may_spin`.
    parallel
        Whether any kernel runs on several threads.
    """
    if not parallel:
        yield
        return
    thread_pool_size()  # TVM has a pool for each thread that runs kernels
    with _ready().entered() if spin else _sleeping():
        yield


@cache
def _ready() -> ReadyThreads:
    """One for the process, which knows the team of each thread."""
    return ReadyThreads(gather, _sleeping())


@cache
def _sleeping() -> AbstractContextManager[None]:
    """One for the process, as the team that never spins is."""
    team = openmp()
    return nullcontext() if team is None else ThreadsThatSleep(team)
