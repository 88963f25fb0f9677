"""The cost of bringing a tensor back, given the current residency."""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.indexed import NONE, Floats, IndexedProblem
from tvm_xengine.solvers.state import ScheduleState


class Prices:
    """Values of recomputations and copies, updated with the schedule under construction.

    Attributes
    ----------
    compute
        Value of each op on each device as the placement sees it, by position.
    remake
        For each tensor the value of making it once more, with all that has to be made for it;
        infinite where that is impossible.
    """

    def __init__(self, indexed: IndexedProblem, state: ScheduleState, compute: Floats) -> None:
        self._problem, self._state = indexed, state
        self.compute: list[list[float]] = compute.tolist()
        self.remake = np.where(indexed.producer == NONE, np.inf, 0.0)
        self._producer: list[int] = indexed.producer.tolist()
        self._route: list[list[list[float]]] = indexed.routes.value.tolist()

    def update(self, j: int) -> None:
        """Update the price of recomputing tensor j."""
        i, p = self._producer[j], self._problem
        if i == NONE or not p.recomputable[i]:
            self.remake[j] = np.inf
            return
        price = min(self.compute[i])
        for u in p.reads[i]:
            if not self._state.copies[u]:
                price += self.remake[u]
        self.remake[j] = price

    def update_results_of(self, j: int) -> None:
        """Update the prices of tensors made from tensor j, whose residency has changed."""
        for i in self._problem.consumers[j]:
            if self._state.has_run[i]:
                for made in self._problem.makes[i]:
                    self.update(made)

    def route(self, j: int, a: int, b: int) -> float:
        """Value of the cheapest chain of copies of tensor j from device a to b."""
        return self._route[a][b][j]

    def copy(self, j: int, d: int) -> float:
        """Value of bringing tensor j to device d from wherever it is."""
        if self._state.overwritten[d, j]:
            return float(np.inf)
        return min((self._route[e][d][j] for e in self._state.holders(j)), default=np.inf)

    def bring(self, j: int, d: int) -> float:
        """Value of having tensor j on device d, by copies or by recomputation."""
        return min(self.copy(j, d), float(self.remake[j]))
