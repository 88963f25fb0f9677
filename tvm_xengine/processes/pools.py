"""Processes that work for this one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from loky import ProcessPoolExecutor, get_reusable_executor

from tvm_xengine.processes.end_with_parent import end_with_parent
from tvm_xengine.processes.torch_later import load_torch_later

_IDLE_S = 60
"""Workers without work for so long end, also when the process that started them was killed."""

_MAY_GROW = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e12"}
"""By default loky starts another worker when one has grown by 300 MB, as one does that loads the libraries
and the context of a GPU, again and again."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


def worker_processes(
    count: int, environment: Mapping[str, str] = _NOTHING, *, ends_with_caller: bool = False
) -> ProcessPoolExecutor:
    """Processes that need no main guard in the program of this one.

    Parameters
    ----------
    environment
        Variables that they have beside those of this process.
    ends_with_caller
        Where the system is Linux, they end with the calling thread, in whatever way that ends.
        Others end a minute after their last work.
    """
    return ProcessPoolExecutor(
        count,
        timeout=_IDLE_S,
        initializer=_begin,
        initargs=(os.getpid() if ends_with_caller else None,),
        env={**_MAY_GROW, **environment},
    )


def kept_worker() -> ProcessPoolExecutor:
    """One such process, the same at every call from whatever thread."""
    return get_reusable_executor(1, timeout=_IDLE_S, initializer=_begin, initargs=(None,))


def _begin(parent: int | None) -> None:
    if parent is not None:
        end_with_parent(parent)
    load_torch_later()
