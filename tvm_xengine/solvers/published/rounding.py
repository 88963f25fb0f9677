"""Two-phase rounding of Checkmate's LP relaxation (Jain et al., MLSys 2020, section 5).

The relaxation is solved at 90 % of the budget. What it keeps is rounded at several thresholds;
then the fewest runs are added that make each rounding a schedule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.backends.answer import BackendOptions
from tvm_xengine.solvers.backends.process import run_backend
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.published.bundles import Bundles
from tvm_xengine.solvers.published.checkmate import (
    CheckmateModel,
    formulate_checkmate,
    single_device_schedule,
)
from tvm_xengine.solvers.request import WRITING_SHARE, Proof, Request, conclude
from tvm_xengine.solvers.result import SolveResult

_ALLOWANCE_RATIO = 0.1
"""Share of the budget that is left for what rounding adds, as in the paper."""
_THRESHOLDS = tuple(round(0.1 * k, 1) for k in range(1, 10))
"""What is kept by more than this is kept; the paper rounds at one, 0.5."""


def solve_by_rounding(problem: Problem, request: Request) -> SolveResult:
    """The best rounding that the validator accepts; the bound is every op at its cheapest.

    Raises
    ------
    UnsupportedProblemError
        If the objective is the makespan, or no device can run every op.
    """
    request.refuse_makespan("checkmate-rounding")
    smaller = {
        device.name: max(1, round((1 - _ALLOWANCE_RATIO) * device.budget_bytes))
        for device in problem.platform.devices
        if problem.home_bytes[device.name] < (1 - _ALLOWANCE_RATIO) * device.budget_bytes
    }
    indexed = index_problem(problem.with_budgets(smaller), request.objective)
    model = formulate_checkmate(indexed, request.looking(WRITING_SHARE))
    answer = run_backend(
        request.backend,
        model.program.relaxed(),
        BackendOptions(time_limit_s=request.remaining_s),
        stop=request.stop,
    )
    x = answer.x
    rounded = [] if x is None else [_rounded(model, x, threshold) for threshold in _THRESHOLDS]
    return conclude(
        problem,
        request,
        request.best_of(problem, rounded),
        Proof(indexed.cheapest),
        solver="checkmate-rounding",
        message=f"relaxation: {answer.message}",
    )


def _rounded(model: CheckmateModel, x: NDArray[np.float64], threshold: float) -> Schedule | None:
    columns = model.keep[0]
    keep = (columns >= 0) & (x[columns] > threshold)
    runs = fewest_runs(model.bundles, keep)
    return None if runs is None else single_device_schedule(model.bundles, runs)


def fewest_runs(bundles: Bundles, keep: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """The least runs, shape (n, n), with which `keep`, shape (n + 1, n), can be kept.

    None when they would repeat an op that must not be repeated.
    """
    n = bundles.op_count
    inputs = [bundles.inputs(v) for v in range(n)]
    runs = np.eye(n, dtype=np.bool_)
    for t in range(n):
        runs[t] |= keep[t + 1] & ~keep[t]
        for v in reversed(range(t + 1)):
            if runs[t, v]:
                for u in inputs[v]:
                    runs[t, u] |= not keep[t, u]
        if any(t > bundles.last_run[i] for i in np.flatnonzero(runs[t]).tolist()):
            return None
    return runs
