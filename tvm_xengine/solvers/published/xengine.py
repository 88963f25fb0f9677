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
is replayed. A solution that the validator refuses is ruled out by a cut (:mod:`cuts`): the results that
device e holds when op v runs there in stage t, each with a column that brings it and one that holds it,
and what v reads and makes, are too many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.schedule import Schedule, Step, with_frees
from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.program import Look, Program, is_set
from tvm_xengine.solvers.published.bundles import Bundles, bundle
from tvm_xengine.solvers.published.checkmate import state_copies
from tvm_xengine.solvers.published.cuts import Cut, no_good, overfull_run
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

    @property
    def decisions(self) -> NDArray[np.int64]:
        """The columns that the schedule is read from."""
        return np.concatenate([self.compute.ravel(), self.keep.ravel()])

    def cut(self, x: NDArray[np.float64], schedule: Schedule) -> Cut:
        """A cut that rules out the solution `x`, whose schedule is refused."""
        over = overfull_run(self.bundles.indexed.problem, schedule)
        if over is not None:
            t, v, e = self._runs(x)[over[0]]
            name = self.bundles.indexed.device_names[self.bundles.devices[e]]
            found = self._too_many_bytes(x, t, v, e) if name == over[1] else None
            if found is not None:
                return found
        return no_good(self.decisions, x)

    def _runs(self, x: NDArray[np.float64]) -> list[tuple[int, int, int]]:
        """Stage, op and device of every run, in order."""
        n, devices = self.bundles.op_count, range(len(self.bundles.devices))
        return [
            (t, v, e)
            for t in range(n)
            for v in range(t + 1)
            for e in devices
            if is_set(x, int(self.compute[e, t, v]))
        ]

    def _too_many_bytes(self, x: NDArray[np.float64], t: int, v: int, e: int) -> Cut | None:
        """The fewest columns found by which device e is over its budget when v runs; None if too few."""
        bundles = self.bundles
        needed = float(bundles.size[v] + bundles.workspace[v, e])
        needed += sum(sum(self._units(bundles.passed(u, v))) for u in bundles.inputs(v))
        columns = {int(self.compute[e, t, v])}
        others = set(range(bundles.op_count)) - {v, *bundles.inputs(v)}
        held = [one for i in others if (one := self._held(x, t, i, v, e)) is not None]
        for units, why in sorted(held, key=lambda one: (-one[0], one[1])):
            if needed > bundles.budget[e]:
                break
            needed += units
            columns.update(why)
        return Cut(tuple(sorted(columns))) if needed > bundles.budget[e] else None

    def _held(
        self, x: NDArray[np.float64], t: int, i: int, v: int, e: int
    ) -> tuple[int, tuple[int, int]] | None:
        """Units of what op i made that e certainly holds when v runs, and the two columns why."""
        bundles = self.bundles
        kept, made = int(self.keep[e, t, i]), int(self.compute[e, t, i])
        is_made = is_set(x, made)
        if is_made and i > v:
            return None  # it may be freed before it is made again
        if not is_set(x, kept) and not is_made:
            return None
        source = kept if is_set(x, kept) else made
        for j in bundles.users(i):
            if v < j <= t and is_set(x, int(self.compute[e, t, j])):
                units = sum(self._units(bundles.passed(i, j)))
                return units, (source, int(self.compute[e, t, j]))
        if is_set(x, int(self.keep[e, t + 1, i])):
            results = self._units(bundles.indexed.makes[i])
            return min(results, default=0), (source, int(self.keep[e, t + 1, i]))
        return None

    def _units(self, tensors: Sequence[int]) -> list[int]:
        """Units of memory of each tensor; updates take those of the state."""
        p = self.bundles.indexed
        return [0 if p.update_of[j] >= 0 else int(p.size[j]) for j in tensors]

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


def formulate_xengine(
    indexed: IndexedProblem, look: Look = lambda: None, *, with_products: bool = True
) -> XEngineModel:
    """XEngine's program over the devices that compute; linear without products."""
    devices = tuple(np.flatnonzero(indexed.can_run.any(axis=0)).tolist())
    bundles = bundle(indexed, devices)
    draft = draft_stages(bundles, look)
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
