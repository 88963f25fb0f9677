"""Bounds without any search: what devices must compute, and the longest chain of ops."""

from __future__ import annotations

import numpy as np

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.index_problem import index_problem, summed
from tvm_xengine.solvers.indexed import (
    Floats,
    IndexedProblem,
)
from tvm_xengine.solvers.result import Objective

_ROUNDS = 200
"""Multiplicative weights come within a percent of the best bound of loads in so many rounds."""
_RATE = 0.1
"""How much a round may shift; larger rates swing."""
_ROUNDING = 1 - 1e-9
"""Sums of times differ in their last digits from those of a schedule."""


def floor_of(problem: Problem, objective: Objective) -> float:
    """A value that no schedule is below: every required op at its cheapest, or the loads of devices."""
    indexed = index_problem(problem, summed(objective))
    return makespan_floor(indexed) if objective is Objective.MAKESPAN else indexed.cheapest


def makespan_floor(indexed: IndexedProblem) -> float:
    """A time that no schedule ends before: memory, copies and repeats do not count."""
    return _ROUNDING * max(_longest_chain(indexed), _least_load(indexed.compute_value))


def _longest_chain(indexed: IndexedProblem) -> float:
    least = indexed.compute_value.min(axis=1)
    end = np.zeros(len(least))
    for i in range(len(least)):
        begin = max((end[before] for before in indexed.predecessors[i]), default=0.0)
        end[i] = begin + least[i]
    return float(end.max(initial=0.0))


def _least_load(value: Floats) -> float:
    """A bound on the time of the busiest device.

    However ops are placed, T >= load_d for every device d, so for weights w_d >= 0 with sum 1

        T >= sum_d w_d load_d >= sum_i min_d w_d value_id.

    The weights are raised where that placement loads a device more than others (multiplicative weights).
    """
    value = value[:, np.isfinite(value).any(axis=0)]
    if not value.size:
        return 0.0
    able = np.isfinite(value)
    finite = np.where(able, value, 0.0)
    weights = np.full(value.shape[1], 1 / value.shape[1])
    best = 0.0
    for _ in range(_ROUNDS):
        weighted = np.where(able, finite * weights, np.inf)
        chosen = weighted.argmin(axis=1)
        best = max(best, float(weighted.min(axis=1).sum()))
        load = np.bincount(chosen, finite[np.arange(len(chosen)), chosen], minlength=value.shape[1])
        weights = weights * np.exp(_RATE * load / max(float(load.max()), 1e-300))
        weights /= weights.sum()
    return best
