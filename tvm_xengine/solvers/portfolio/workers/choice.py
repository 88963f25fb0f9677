"""The choice of workers by the size and objective of a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.workers.relaxations import raise_bounds
from tvm_xengine.solvers.portfolio.workers.search import search_in_turns
from tvm_xengine.solvers.portfolio.workers.shortest_path import find_shortest_path
from tvm_xengine.solvers.portfolio.workers.stage_model import solve_stage_model
from tvm_xengine.solvers.result import Objective

Worker = Callable[[Task], None]
"""Works until it has nothing left to try or `task.is_over`; posts its results by ``task.post``."""

SEARCH, RELAXATIONS, SHORTEST_PATH, STAGE_MODEL = (
    "search",
    "relaxations",
    "shortest path",
    "stage model",
)


def workers_for(task: Task) -> Mapping[str, Worker]:
    """The workers by name: search and relaxations, and what proves optima of small graphs."""
    count, options = len(task.problem.graph.ops), task.options
    workers: dict[str, Worker] = {SEARCH: search_in_turns, RELAXATIONS: raise_bounds}
    if task.request.objective is Objective.MAKESPAN or count > options.exact_ops:
        return workers
    if count <= options.open_ops:
        return {**workers, SHORTEST_PATH: find_shortest_path}
    if count <= options.parallel_ops:
        return {**workers, STAGE_MODEL: solve_stage_model}
    return {**workers, RELAXATIONS: _relaxations_then_stage_model}


def _relaxations_then_stage_model(task: Task) -> None:
    raise_bounds(task)
    if not task.is_over:
        solve_stage_model(task)
