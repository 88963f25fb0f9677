"""XEngine (Schuler, Membarth and Slusallek, ACM TACO 2022): placement with rematerialization.

    min sum value[i,d] compute[d,t,i]
        + sum transfer_value(u, v, d -> e) compute[e,t,v] present[d,t,u]       for d != e
    present = keep or compute;   compute[e,t,v] <= sum_d present[d,t,u]     for edges (u, v)

over the rows of `stages`, which are written for each device (the released code adds them up
over the devices) and free what has no more readers (the released code frees a wrong amount).
The products stay products for SCIP and Gurobi; for HiGHS they become flows,

    compute[e,t,v] <= present[e,t,u] + sum_d moved[d,e,t,u,v],   moved <= present[d,t,u]

which do not charge a copy that is not needed. Left out, as published: a copy occupies nothing
at its destination and cannot be kept there, so that budgets may be exceeded when the schedule
is replayed; the validator then refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.schedule import Schedule, Step, with_frees
from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.program import Program, is_set
from tvm_xengine.solvers.published.bundles import Bundles, bundle
from tvm_xengine.solvers.published.checkmate import state_copies
from tvm_xengine.solvers.published.stages import (
    Grid,
    StageDraft,
    draft_stages,
    keep_only_what_was_there,
    keep_results_to_the_end,
    stay_within_budgets,
    there,
)

SCOPE = "schedules of XEngine's model, with copies weighed as there"


@dataclass(frozen=True)
class XEngineModel:
    """The program, and the columns that a schedule is read from (shapes as in `StageDraft`)."""

    bundles: Bundles
    program: Program
    compute: Grid
    keep: Grid

    def schedule(self, x: NDArray[np.float64]) -> Schedule:
        """The schedule that the solution `x` describes, with a copy before every use elsewhere."""
        bundles, p = self.bundles, self.bundles.indexed
        steps: list[Step] = []
        for t in range(bundles.op_count):
            for v in range(t + 1):
                for e in range(len(bundles.devices)):
                    if is_set(x, int(self.compute[e, t, v])):
                        for u in bundles.inputs(v):
                            steps += self._copies(x, t, u, v, e)
                        steps += state_copies(bundles, v, e)
                        steps.append(p.compute(v, bundles.devices[e]))
        return with_frees(p.problem, steps)

    def _copies(self, x: NDArray[np.float64], t: int, u: int, v: int, e: int) -> list[Step]:
        bundles = self.bundles
        holders = [
            d
            for d in range(len(bundles.devices))
            if is_set(x, int(self.keep[d, t, u])) or is_set(x, int(self.compute[d, t, u]))
        ]
        if e in holders or not holders:
            return []
        d = min(holders, key=lambda d: bundles.transfer_value(u, v, d, e))
        return [
            bundles.indexed.transfer(j, bundles.devices[d], bundles.devices[e])
            for j in bundles.passed(u, v)
        ]


def formulate_xengine(indexed: IndexedProblem, *, with_products: bool = True) -> XEngineModel:
    """XEngine's program over the devices that compute; linear without products."""
    devices = tuple(np.flatnonzero(indexed.can_run.any(axis=0)).tolist())
    bundles = bundle(indexed, devices)
    draft = draft_stages(bundles)
    keep_only_what_was_there(draft)
    if with_products:
        _read_from_anywhere(draft)
        _weigh_products(draft)
    else:
        _read_by_flows(draft)
    keep_results_to_the_end(draft)
    stay_within_budgets(draft)
    return XEngineModel(bundles, draft.builder.build(), draft.compute, draft.keep)


def _linked(draft: StageDraft, u: int, v: int, e: int) -> list[int]:
    """Devices from which device e can read what op u passes to v, itself included."""
    return [
        d
        for d in range(len(draft.bundles.devices))
        if d == e or np.isfinite(draft.bundles.transfer_value(u, v, d, e))
    ]


def _read_from_anywhere(draft: StageDraft) -> None:
    """compute[e,t,v] <= sum over linked d of keep[d,t,u] + compute[d,t,u]"""
    for u, v in draft.bundles.edges:
        for e in range(len(draft.bundles.devices)):
            sources = _linked(draft, u, v, e)
            for t in range(v, draft.bundles.op_count):
                if draft.compute[e, t, v] >= 0:
                    terms = [term for d in sources for term in there(draft, d, t, u)]
                    draft.builder.row(
                        [(int(draft.compute[e, t, v]), 1.0), *((c, -w) for c, w in terms)],
                        upper=0.0,
                    )


def _weigh_products(draft: StageDraft) -> None:
    """transfer_value * compute[e,t,v] * present[d,t,u]"""
    for u, v in draft.bundles.edges:
        for e in range(len(draft.bundles.devices)):
            for d in _linked(draft, u, v, e):
                if d == e:
                    continue
                value = draft.bundles.transfer_value(u, v, d, e)
                for t in range(v, draft.bundles.op_count):
                    if draft.compute[e, t, v] >= 0:
                        present = _present(draft, d, t, u)
                        draft.builder.minimise_products(int(draft.compute[e, t, v]), present, value)


def _present(draft: StageDraft, d: int, t: int, u: int) -> int:
    """A column that is at least the larger of keep and compute."""
    terms = there(draft, d, t, u)
    if len(terms) == 1:
        return terms[0][0]
    present = int(draft.builder.binaries(1)[0])
    for column, _ in terms:
        draft.builder.row([(column, 1.0), (present, -1.0)], upper=0.0)
    return present


def _read_by_flows(draft: StageDraft) -> None:
    """compute[e,t,v] <= present[e,t,u] + sum_d moved,  moved <= present[d,t,u]"""
    builder = draft.builder
    for u, v in draft.bundles.edges:
        for e in range(len(draft.bundles.devices)):
            for t in range(v, draft.bundles.op_count):
                if draft.compute[e, t, v] < 0:
                    continue
                sources = there(draft, e, t, u)
                for d in _linked(draft, u, v, e):
                    if d == e:
                        continue
                    moved = int(builder.fractions(1)[0])
                    builder.minimise(moved, draft.bundles.transfer_value(u, v, d, e))
                    holds = there(draft, d, t, u)
                    builder.row([(moved, 1.0), *((c, -w) for c, w in holds)], upper=0.0)
                    sources.append((moved, 1.0))
                terms = [(int(draft.compute[e, t, v]), 1.0), *((c, -w) for c, w in sources)]
                builder.row(terms, upper=0.0)
