"""Runs a program in a worker process for a worker of the portfolio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.highs import work_before_s
from tvm_xengine.solvers.backends.process import BackendRun, News
from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.events import BoundProven
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.request import Proof
from tvm_xengine.solvers.result import Scope


def run_for(
    task: Task,
    scope: Scope | None,
    program: Program,
    options: BackendOptions,
    floor: float,
    *,
    on_solution: Callable[[NDArray[np.float64]], None] = lambda _x: None,
) -> Answer:
    """The answer of HiGHS, or the best so far once the task is over.

    Parameters
    ----------
    scope
        Of the schedules for which its bound holds; it is posted as it rises. None posts nothing.
    floor
        A bound that is known already.
    on_solution
        Called, from a thread, with every better solution.
    """
    if task.is_over:
        return Answer(Outcome.UNKNOWN, None, None, floor, "interrupted")

    def risen(bound: float) -> None:
        if scope is not None:
            task.post(BoundProven(Proof(bound, scope)))

    def worked(work_s: float) -> bool:
        task.request.limits.clock.worked(work_s)
        return not task.is_over

    options = replace(options, counts_work=task.counts_work)
    before_s = work_before_s(program) if options.counts_work else 0.0
    if before_s > task.request.remaining_s:
        worked(before_s)  # larger ones that follow would not begin in time either
        return Answer(Outcome.UNKNOWN, None, None, floor, "no work left")
    run = BackendRun(
        "highs",
        program,
        options,
        floor=floor,
        news=News(on_incumbent=lambda x, _value: on_solution(x), on_bound=risen, on_work=worked),
        before_s=before_s,
    )
    return run.answer(task.board.stop)
