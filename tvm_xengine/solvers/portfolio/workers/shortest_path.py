"""The optimum of a small graph by A*, or by one relaxation with an open order."""

from __future__ import annotations

import math

from tvm_xengine.solvers.astar.search import Exchange, shortest_path
from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.bound import bound_of_open_order
from tvm_xengine.solvers.portfolio.context import Context
from tvm_xengine.solvers.portfolio.events import BoundProven, ScheduleFound
from tvm_xengine.solvers.request import Proof
from tvm_xengine.solvers.result import Scope


def find_shortest_path(task: Task) -> None:
    """Prove the optimum by A*; where that does not apply or ends early, by a relaxation."""
    task.rest(task.options.head_start_s)
    if task.is_over:
        return
    found = shortest_path(
        task.problem,
        task.request.objective,
        Exchange(
            known=lambda: task.best[0] if task.best else None,
            should_stop=lambda: task.is_over,
            on_bound=lambda bound: task.post(BoundProven(Proof(bound))),
        ),
        clock=task.request.limits.clock,
    )
    if found is not None and found.is_over:
        if found.schedule is not None:
            task.post(ScheduleFound(found.schedule, "astar"))
        is_infeasible = math.isinf(found.bound)
        bound = 0.0 if is_infeasible else found.bound
        task.post(BoundProven(Proof(bound, is_infeasible=is_infeasible)))
    elif not task.is_over:
        context = Context.of(task)
        task.post(BoundProven(bound_of_open_order(context, context.solver(Scope.EVERY_SCHEDULE))))
