"""Ranks that are threads of this process: what they share is the same, and nothing has to be started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar
from unittest.mock import patch

from torch.distributed import HashStore, PrefixStore, ProcessGroupGloo

from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.runtime.vm_function import VmFunction, _Emitter

_LIMIT_S = 60.0
"""Longer than any delay of a test on a busy machine; whoever waits in vain ends then."""
T = TypeVar("T")


def in_ranks(work: Callable[[Ranks], T], size: int = 2) -> list[T]:
    """What `work` returns in each rank."""
    store = HashStore()

    def one(rank: int) -> T:
        options = ProcessGroupGloo._Options()
        options._devices = [ProcessGroupGloo.create_device(interface="lo")]
        options._timeout = timedelta(seconds=_LIMIT_S)
        group = ProcessGroupGloo(PrefixStore("group", store), rank, size, options)
        ranks = Ranks(group, PrefixStore("attendance", store), _LIMIT_S)
        try:
            return work(ranks)
        finally:
            ranks.close()

    with _one_builder_at_a_time(), ThreadPoolExecutor(size) as threads:
        return list(threads.map(one, range(size)))


@contextmanager
def _one_builder_at_a_time() -> Iterator[None]:
    """Functions are built in turn: TVM has one stack of builders for all threads of a process."""
    turn, build = threading.Lock(), _Emitter.function

    def in_turn(emitter: _Emitter, name: str, *, has_events: bool = False) -> VmFunction:
        with turn:
            return build(emitter, name, has_events=has_events)

    with patch.object(_Emitter, "function", in_turn):
        yield
