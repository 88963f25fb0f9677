"""What is entered while kernels run, so that their threads spin or sleep between them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import TracebackType

import tvm

from tvm_xengine.kernels.threads.idle import ThreadsThatSleep
from tvm_xengine.kernels.threads.pool import thread_pool_size
from tvm_xengine.kernels.threads.ready import ReadyThreads
from tvm_xengine.kernels.threads.team import gather, openmp


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
