"""The next need of each tensor."""

from __future__ import annotations

import heapq

import numpy as np

from tvm_xengine.solvers.indexed import NOWHERE, IndexedProblem

NEVER = 2**40
"""Next need of a tensor without further readers; beyond every position of an op."""


class Future:
    """The positions in the order of the ops at which tensors are needed; the end is position n.

    Attributes
    ----------
    now
        Position of the op that is being run.
    next_need
        For each tensor, as of its last `refresh`; `NEVER` without one.
    """

    def __init__(self, indexed: IndexedProblem) -> None:
        self.now = 0
        self._needs = [list(readers) for readers in indexed.consumers]
        for j, device in enumerate(indexed.must_end_on.tolist()):
            if device != NOWHERE:
                self._needs[j].append(indexed.op_count)
        self.next_need = np.array([needs[0] if needs else NEVER for needs in self._needs])

    def refresh(self, j: int) -> None:
        """Forget the needs of tensor j that have passed."""
        needs = self._needs[j]
        while needs and needs[0] < self.now:
            heapq.heappop(needs)
        self.next_need[j] = needs[0] if needs else NEVER

    def add(self, j: int, position: int) -> None:
        """Tensor j is needed at one more position."""
        heapq.heappush(self._needs[j], position)
        self.refresh(j)
