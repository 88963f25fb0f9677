"""Checkmate (Jain et al., MLSys 2020): rematerialization on one device, as published.

    min sum value_i compute[t,i]   over the rows of `stages`, with
    compute[t,v] <= keep[t,u] + compute[t,u]        for every edge (u, v)

Left out, compared with `tight`: other devices, paging, results of one op kept apart, freeing a
result that nothing reads, batch inputs freed after their last use.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.schedule import Schedule, Step, with_frees
from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.program import Look, Program
from tvm_xengine.solvers.published.bundles import Bundles, bundle_on_one_device
from tvm_xengine.solvers.published.cuts import Cut, no_good
from tvm_xengine.solvers.published.stages import (
    Grid,
    StageDraft,
    draft_stages,
    keep_only_what_was_there,
    keep_results_to_the_end,
    stay_within_budgets,
    there,
)

SCOPE = "schedules of Checkmate's model on one device"


@dataclass(frozen=True)
class CheckmateModel:
    """The program, and the columns that a schedule is read from (shapes as in `StageDraft`)."""

    bundles: Bundles
    program: Program
    compute: Grid
    keep: Grid

    def schedule(self, x: NDArray[np.float64]) -> Schedule:
        """The schedule that the solution `x` describes."""
        runs = self.compute[0]
        return single_device_schedule(self.bundles, (runs >= 0) & (x[runs] > 0.5))

    def cut(self, x: NDArray[np.float64], _schedule: Schedule) -> Cut:
        """A cut that rules out the solution `x`, whose schedule is refused."""
        return no_good(self.compute.ravel(), x)


def formulate_checkmate(indexed: IndexedProblem, look: Look = lambda: None) -> CheckmateModel:
    """Checkmate's program on the best device.

    Raises
    ------
    UnsupportedProblemError
        As `bundle_on_one_device`.
    """
    draft = draft_one_device(indexed, look)
    keep_only_what_was_there(draft)
    return CheckmateModel(draft.bundles, draft.builder.build(), draft.compute, draft.keep)


def draft_one_device(indexed: IndexedProblem, look: Look) -> StageDraft:
    """The stage model on the best device, but for the rows of keep."""
    bundles = bundle_on_one_device(indexed)
    draft = draft_stages(bundles, look)
    read_what_is_there(draft)
    keep_results_to_the_end(draft)
    stay_within_budgets(draft)
    return draft


def read_what_is_there(draft: StageDraft) -> None:
    """compute[t,v] <= keep[t,u] + compute[t,u]"""
    for u, v in draft.bundles.edges:
        for t in range(v, draft.bundles.op_count):
            compute = int(draft.compute[0, t, v])
            if compute >= 0:
                sources = [(c, -1.0) for c, _ in there(draft, 0, t, u)]
                draft.builder.row([(compute, 1.0), *sources], upper=0.0)


def single_device_schedule(bundles: Bundles, runs: NDArray[np.bool_]) -> Schedule:
    """The schedule that runs op i in stage t where ``runs[t, i]``."""
    steps: list[Step] = []
    for t in range(bundles.op_count):
        for i in np.flatnonzero(runs[t]).tolist():
            steps += state_copies(bundles, i, 0)
            steps.append(bundles.indexed.compute(i, bundles.devices[0]))
    return with_frees(bundles.indexed.problem, steps)


def state_copies(bundles: Bundles, i: int, d: int) -> list[Step]:
    """Copies of the state that op i reads to device d, from its home."""
    p, device = bundles.indexed, bundles.devices[d]
    return [
        p.transfer(j, int(p.home[j]), device)
        for j in p.reads[i]
        if p.home[j] >= 0 and p.home[j] != device
    ]
