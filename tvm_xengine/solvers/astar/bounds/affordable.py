"""Reduced cost fixing: excludes runs that no schedule below a known value contains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_xengine.solvers.astar.bounds.potentials import Rest
from tvm_xengine.solvers.indexed import IndexedProblem

_TIMES = 3
"""Without some runs the bound rises, so that others fall; so often that is looked at."""


def without_costly_runs(indexed: IndexedProblem, cut: float) -> IndexedProblem:
    """The problem without each run (op on a device) that only schedules of cost `cut` or more contain.

    This is reduced cost fixing (Savelsbergh, Preprocessing and Probing Techniques for Mixed
    Integer Programming Problems, 1994, section 3), with one bound solved for each run.
    """
    if not np.isfinite(cut):
        return indexed
    for _ in range(_TIMES):
        rest = Rest(indexed)
        weight = indexed.compute_value.copy()
        for i, d in np.argwhere(indexed.can_run).tolist():
            if indexed.can_run[i].sum() > 1 and rest.least_with(d, i) >= cut:
                weight[i, d] = np.inf
        if np.array_equal(weight, indexed.compute_value):
            break
        indexed = replace(indexed, compute_value=weight)
    return indexed
