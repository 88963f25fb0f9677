"""Devices on which nothing need run, since another one does all that they do for no more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_xengine.solvers.formulations.roomy import roomy_devices
from tvm_xengine.solvers.indexed import IndexedProblem


def without_matched_devices(indexed: IndexedProblem) -> IndexedProblem:
    """The problem in which nothing runs on devices that one with room for everything matches."""
    for r in range(indexed.device_count):
        others = np.flatnonzero(roomy_devices(indexed)).tolist()
        if any(_matches(indexed, other, r) for other in others if other != r):
            weight = indexed.run_weight.copy()
            weight[:, r] = np.inf
            indexed = replace(indexed, run_weight=weight)
    return indexed


def _matches(indexed: IndexedProblem, other: int, r: int) -> bool:
    """Whether every run on r, with all it reads and makes, may be moved to `other`.

    That is so where nothing must stay on r, runs and copies there cost no less, and no update
    on `other` replaces state that a run on r touches.
    """
    p = indexed
    runs = np.flatnonzero(p.can_run[:, r])
    if not runs.size or (p.home == r).any() or (p.must_end_on == r).any():
        return False
    rest = [d for d in range(p.device_count) if d not in (r, other)]
    as_near = (p.copy_weight[rest, other] <= p.copy_weight[rest, r]).all()
    as_near &= (p.copy_weight[other, rest] <= p.copy_weight[r, rest]).all()
    as_fast = (p.run_weight[runs, other] <= p.run_weight[runs, r]).all()
    return bool(as_near and as_fast) and not any(
        _may_be_replaced(p, j, other) for i in runs for j in (*p.reads[i], *p.makes[i])
    )


def _may_be_replaced(p: IndexedProblem, j: int, other: int) -> bool:
    """Whether j is state, or its update, that is at home on `other` or may be updated there."""
    state = j if p.update_of[j] < 0 else int(p.update_of[j])
    updater = int(p.updated_by[state])
    return updater >= 0 and bool(p.home[state] == other or p.can_run[updater, other])
