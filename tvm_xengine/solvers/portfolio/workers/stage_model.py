"""The exact stage model, which proves an optimum and finds schedules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.backends.answer import BackendOptions, Outcome
from tvm_xengine.solvers.exact.encode_tight import encode_tight
from tvm_xengine.solvers.exact.tight import formulate_tight
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.portfolio.backend import run_for
from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.events import BoundProven, ScheduleFound
from tvm_xengine.solvers.request import WRITING_SHARE, Proof, TimeIsUpError
from tvm_xengine.solvers.result import Scope


def solve_stage_model(task: Task) -> None:
    """Solve it, from the best schedule that is known after a short wait."""
    task.board.stop.wait(task.options.head_start_s)
    if task.is_over:
        return
    indexed = index_problem(task.problem, task.request.objective)
    try:
        model = formulate_tight(indexed, look=task.request.looking(WRITING_SHARE))
    except TimeIsUpError:
        return

    def found(x: NDArray[np.float64]) -> None:
        task.post(ScheduleFound(model.schedule(x), "tight"))

    options = BackendOptions(
        task.request.remaining_s,
        task.request.limits.gap_ratio,
        start=encode_tight(model, task.best[1]) if task.best else None,
        seed=task.request.seed,
    )
    answer = run_for(
        task, Scope.STAGE_MODEL, model.program, options, indexed.cheapest, on_solution=found
    )
    if answer.x is not None:
        found(answer.x)
    is_infeasible = answer.outcome is Outcome.INFEASIBLE
    bound = indexed.cheapest if is_infeasible else answer.bound
    task.post(BoundProven(Proof(bound, Scope.STAGE_MODEL, is_infeasible)))
