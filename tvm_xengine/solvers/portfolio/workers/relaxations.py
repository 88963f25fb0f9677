"""Raises bounds by relaxations, and finds schedules with them, in turns on one core."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest

from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.bound import bounds
from tvm_xengine.solvers.portfolio.context import Context
from tvm_xengine.solvers.portfolio.events import BoundProven
from tvm_xengine.solvers.portfolio.refine import refine
from tvm_xengine.solvers.result import Objective, Scope


def raise_bounds(task: Task) -> None:
    """All rounds of bounds, until the task is over."""
    for _ in rounds_of_bounds(task):
        pass


def rounds_of_bounds(task: Task) -> Iterator[None]:
    """Bounds for every schedule and for the graph's order, and refined schedules, in turns.

    On large graphs the graph's order comes last. For the makespan there are bounds for every schedule only:
    an order proves little about it, and refined schedules have the least cost.
    """
    context = Context.of(task)
    every, given = _rising(context, Scope.EVERY_SCHEDULE), _rising(context, Scope.GIVEN_ORDER)
    is_in_turns = len(task.problem.graph.ops) <= task.options.turns_ops
    proving = _in_turns(every, given) if is_in_turns else chain(every, given)
    is_makespan = task.request.objective is Objective.MAKESPAN
    refining = refine(context, context.solver(None))
    for _ in every if is_makespan else _in_turns(proving, refining):
        if task.is_over:
            return
        yield


def _rising(context: Context, scope: Scope) -> Iterator[None]:
    """Raise the bound of that scope, round by round, while it may be that of the best schedule."""
    for proof in bounds(context, scope, run_apart=context.solver(None)):
        context.task.post(BoundProven(proof))
        best = context.task.best
        if best is not None and not proof.allows(best[0]):
            return
        yield


def _in_turns(one: Iterator[None], other: Iterator[None]) -> Iterator[None]:
    """A step of each in turn, until both end."""
    for _ in zip_longest(one, other):
        yield
