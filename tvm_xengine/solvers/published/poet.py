"""POET (Patil et al., ICML 2022): Checkmate with paging to a device that only stores.

    min sum value_i compute[t,i] + sum page_out_i out[t,i] + sum page_in_i back[t,i]
    keep[t+1,i] <= keep[t,i] + compute[t,i] + back[t,i]
    stored[t+1,i] <= stored[t,i] + out[t,i];  back[t,i] <= stored[t,i];  out[t,i] <= keep[t,i]
    sum time_i compute[t,i] <= runtime limit

over the rows of `stages` on one device. Its objective is energy; others may be asked for. As
published, a tensor that is paged in can be read from the next stage on and the store has room
for everything; the validator checks what really fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import UnsupportedProblemError
from tvm_xengine.scheduling.schedule import Schedule, Step, with_frees
from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.program import ABSENT, Look, Program, is_set
from tvm_xengine.solvers.published.bundles import Bundles
from tvm_xengine.solvers.published.checkmate import draft_one_device, state_copies
from tvm_xengine.solvers.published.cuts import Cut, no_good
from tvm_xengine.solvers.published.stages import (
    Grid,
    StageDraft,
    keep_only_what_was_there,
)

SCOPE = "schedules of POET's model on one device and one store"


@dataclass(frozen=True)
class PoetModel:
    """The program, and the columns that a schedule is read from.

    Attributes
    ----------
    compute
        Shape (n, n): stage, op.
    out, back
        Shape (n, n): copies to the store at the start of a stage, and from it at its end.
    """

    bundles: Bundles
    store: int
    program: Program
    compute: Grid
    out: Grid
    back: Grid

    def schedule(self, x: NDArray[np.float64]) -> Schedule:
        """The schedule that the solution `x` describes."""
        p, device = self.bundles.indexed, self.bundles.devices[0]
        steps: list[Step] = []
        for t in range(self.bundles.op_count):
            for i in range(t + 1):
                if is_set(x, int(self.out[t, i])):
                    steps += [p.transfer(j, device, self.store) for j in p.makes[i]]
            for i in range(t + 1):
                if is_set(x, int(self.compute[t, i])):
                    steps += [*state_copies(self.bundles, i, 0), p.compute(i, device)]
            for i in range(t + 1):
                if is_set(x, int(self.back[t, i])):
                    steps += [p.transfer(j, self.store, device) for j in p.makes[i]]
        return with_frees(p.problem, steps)

    def cut(self, x: NDArray[np.float64], _schedule: Schedule) -> Cut:
        """A cut that rules out the solution `x`, whose schedule is refused."""
        grids = (self.compute, self.out, self.back)
        return no_good(np.concatenate([grid.ravel() for grid in grids]), x)


def formulate_poet(
    indexed: IndexedProblem,
    look: Look = lambda: None,
    *,
    runtime_limit_us: float | None = None,
) -> PoetModel:
    """POET's program on the best device and the first store that is linked with it both ways.

    Raises
    ------
    UnsupportedProblemError
        If there is no device that runs every op, or no such store.
    """
    draft = draft_one_device(indexed, look)
    device = draft.bundles.devices[0]
    stores = [
        d
        for d in range(indexed.device_count)
        if d != device and (device, d) in indexed.links and (d, device) in indexed.links
    ]
    if not stores:
        raise UnsupportedProblemError(
            "poet needs a second device that is linked with the first both ways"
        )
    idle = [d for d in stores if not indexed.can_run[:, d].any()]
    store = (idle or stores)[0]
    out, back = _page(draft, store)
    keep_only_what_was_there(draft)
    if runtime_limit_us is not None:
        _finish_in_time(draft, runtime_limit_us)
    program = draft.builder.build()
    return PoetModel(draft.bundles, store, program, draft.compute[0], out, back)


def _page(draft: StageDraft, store: int) -> tuple[Grid, Grid]:
    """Columns and rows of paging; what comes back may be kept."""
    p, builder, n = draft.bundles.indexed, draft.builder, draft.bundles.op_count
    device = draft.bundles.devices[0]
    out = np.full((n, n), ABSENT, np.int64)
    back = np.full((n, n), ABSENT, np.int64)
    for i in range(n):
        if any(p.update_of[j] >= 0 for j in p.makes[i]):
            continue
        value_out = sum(float(p.transfer_value[device, store, j]) for j in p.makes[i])
        value_back = sum(float(p.transfer_value[store, device, j]) for j in p.makes[i])
        stored_before = ABSENT
        for t in range(i + 1, n):
            out[t, i], back[t, i], stored = builder.binaries(3).tolist()
            builder.minimise([out[t, i], back[t, i]], [value_out, value_back])
            keep = int(draft.keep[0, t, i])
            builder.row([(int(out[t, i]), 1.0), (keep, -1.0)], upper=0.0)
            before = [(stored_before, -1.0), (int(out[t - 1, i]), -1.0)]
            builder.row([(stored, 1.0), *(term for term in before if term[0] >= 0)], upper=0.0)
            builder.row([(int(back[t, i]), 1.0), (stored, -1.0)], upper=0.0)
            draft.may_appear[0, t, i] = [(int(back[t, i]), 1.0)]
            stored_before = stored
    return out, back


def _finish_in_time(draft: StageDraft, runtime_limit_us: float) -> None:
    """sum time_i compute[t,i] <= runtime limit"""
    p = draft.bundles.indexed
    device = p.device_names[draft.bundles.devices[0]]
    terms = [
        (int(column), p.problem.costs[p.op_names[i]][device].compute_us)
        for (_, i), column in np.ndenumerate(draft.compute[0])
        if column >= 0
    ]
    draft.builder.row(terms, upper=runtime_limit_us)
