"""Retention intervals, as in MOCCASIN (Bartan et al., ICML 2023): when each result is there, for CP-SAT.

Time is a grid: slot i of stage t is the event ``t (t + 1) / 2 + i``, i <= t, as in the stage
models. Each op i has C retentions; the first begins when op i first runs, at slot i of stage
i, and each further one is optional:

    start[i,c]    the event at which op i runs: slot i of a stage t > i; start[i,c] > end[i,c-1]
    end[i,c]      the last event at which the result is there, >= start[i,c]
    is_on[i,c]    whether the retention exists; those of an op are used in order

    sum over the retentions that cover an event of their bytes, and workspace, <= budget
    every run of v at event s has, for each u that v reads, one retention of u with
        start[u,c] < s <= end[u,c]
    what must be there at the end has a retention that ends with the last event
    min sum value_i is_on[i,c]

There are O(C n) intervals instead of O(n^2) binaries. Left out: more than C retentions of a
result, and all that `checkmate` leaves out too (one device, bundles of results).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.published.bundles import Bundles, bundle_on_one_device
from tvm_xengine.solvers.published.checkmate import single_device_schedule

MOST_RETENTIONS = 3
"""C. With 2, as published, optima are up to two percent off; a fourth never helped."""
SCOPE = f"schedules on one device in which every result is made at most {MOST_RETENTIONS} times"


@dataclass(frozen=True)
class RetentionProgram:
    """The model in plain numbers, as the worker process is given it.

    Attributes
    ----------
    compute_value, size, workspace, last_run
        Of each op; the last stage in which it may run.
    survives
        Whether the result must be there at the end.
    edges
        Pairs (u, v): v reads what u makes.
    retentions
        C.
    """

    compute_value: NDArray[np.float64]
    size: NDArray[np.int64]
    workspace: NDArray[np.int64]
    budget: int
    last_run: tuple[int, ...]
    survives: tuple[bool, ...]
    edges: tuple[tuple[int, int], ...]
    retentions: int = MOST_RETENTIONS

    @property
    def op_count(self) -> int:
        """Number of ops, n."""
        return len(self.compute_value)

    @property
    def column_count(self) -> int:
        """Number of intervals."""
        return self.retentions * self.op_count

    @property
    def row_count(self) -> int:
        """Number of reads that must be covered."""
        return self.retentions * len(self.edges)


@dataclass(frozen=True)
class RetentionModel:
    """The program, and how a schedule is read from its solutions."""

    bundles: Bundles
    program: RetentionProgram

    def schedule(self, x: NDArray[np.float64]) -> Schedule:
        """The schedule whose runs of op i are at the events ``x[i]`` that are not negative.

        `x` has the shape (n, C), or is that flattened.
        """
        n = self.bundles.op_count
        runs = np.zeros((n, n), np.bool_)
        for i, events in enumerate(x.reshape(n, -1)):
            for at in events[events >= 0].tolist():
                runs[stage_of(int(at)), i] = True
        return single_device_schedule(self.bundles, runs)


def event(stage: int, slot: int) -> int:
    """The event of a slot of a stage."""
    return stage * (stage + 1) // 2 + slot


def stage_of(at: int) -> int:
    """The stage of an event."""
    stage = int((np.sqrt(8.0 * at + 1.0) - 1.0) / 2.0)
    while event(stage + 1, 0) <= at:
        stage += 1
    while event(stage, 0) > at:
        stage -= 1
    return stage


def formulate_retention(indexed: IndexedProblem) -> RetentionModel:
    """The retention model on the best device.

    Raises
    ------
    UnsupportedProblemError
        As `bundle_on_one_device`.
    """
    bundles = bundle_on_one_device(indexed)
    program = RetentionProgram(
        compute_value=bundles.compute_value[:, 0],
        size=bundles.size.astype(np.int64),
        workspace=bundles.workspace[:, 0].astype(np.int64),
        budget=int(bundles.budget[0]),
        last_run=bundles.last_run,
        survives=bundles.survives,
        edges=bundles.edges,
    )
    return RetentionModel(bundles, program)
