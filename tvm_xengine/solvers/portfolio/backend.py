"""Runs a program in a worker process for a worker of the portfolio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import BackendRun
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
    on_solution: Callable[[NDArray[np.float64]], None] | None = None,
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

    if task.counts_work:  # what comes on the way comes when the machine has time for it
        run = BackendRun("highs", program, replace(options, counts_work=True), floor=floor)
        answer = run.answer(task.request.stop)  # which an interrupt sets
        task.request.limits.clock.worked(answer.work_s)
        return answer

    def risen(bound: float) -> None:
        if scope is not None:
            task.post(BoundProven(Proof(bound, scope)))

    run = BackendRun(
        "highs",
        program,
        options,
        floor=floor,
        on_bound=risen,
        on_incumbent=None if on_solution is None else lambda x, _value: on_solution(x),
    )
    return run.answer(task.board.stop)
