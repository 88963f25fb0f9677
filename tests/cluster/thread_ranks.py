"""Ranks that are threads of this process: what they share is the same, and nothing has to be started."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

from torch.distributed import HashStore, PrefixStore, ProcessGroupGloo

from tvm_xengine.cluster.ranks import Ranks

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

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(one, range(size)))
