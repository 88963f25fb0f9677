"""Time against budget: the best schedules over a range of budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from tvm_xengine.planning.answers import with_best_bound
from tvm_xengine.planning.question import PlanOptions
from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import SolveResult, Status, StopReason
from tvm_xengine.solvers.solve import solve


@dataclass(frozen=True)
class ParetoPoint:
    """One budget of a front and the answer to it.

    Attributes
    ----------
    budgets
        Bytes of each device with a given budget.
    graph
        What was scheduled.
    slices
        Number of slices of the batch in which it runs.
    floor
        No schedule of this form has a smaller value, whatever the budgets are.
    """

    budgets: Mapping[str, int]
    result: SolveResult
    graph: OpGraph
    slices: int = 1
    floor: float = 0.0


def pareto(
    problem: Problem,
    budgets: Sequence[Mapping[str, int]],
    options: PlanOptions,
    *,
    start: Schedule | None = None,
    on_point: Callable[[ParetoPoint], None] | None = None,
) -> tuple[ParetoPoint, ...]:
    """The answers to each of `budgets`, in that order; no larger budget has a worse answer.

    Solved from the last to the first, so list them from ample to small: each solve begins from
    the schedule of its neighbour, which fits whenever that had no more memory, and is repaired where
    it does not. Afterwards a point takes over the schedule of any other that fits its budgets and is
    better. An interrupted front ends with the points that are solved: the last of `budgets`.

    Parameters
    ----------
    options
        Of the solve of each point.
    start
        Where the first solve begins.
    """
    results: list[SolveResult] = []
    for given in reversed(budgets):
        result = solve(
            problem.with_budgets(given),
            options.solver,
            options.backend,
            objective=options.objective,
            limits=options.limits,
            seed=options.seed,
            start=start,
        )
        results.append(result)
        start = result.schedule or start
        if on_point is not None:
            on_point(ParetoPoint(dict(given), result, problem.graph))
        if result.stopped_by is StopReason.INTERRUPTED:
            break
    results.reverse()
    budgets = budgets[len(budgets) - len(results) :]
    schedules = [result.schedule for result in results if result.schedule is not None]
    points = [
        ParetoPoint(
            dict(given), _best_of(problem.with_budgets(given), result, schedules), problem.graph
        )
        for given, result in zip(budgets, results, strict=True)
    ]
    return tuple(_with_bounds_of_larger(point, points) for point in points)


def with_best_of_smaller(points: Sequence[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    """Points from ample to small; each takes over what is better and was found for a smaller budget.

    Of that, only its floor bounds what is possible in the larger budget.
    """
    made: list[ParetoPoint] = []
    for point in reversed(points):
        for other in made:
            value, ours = other.result.value, point.result.value
            if _fits(other, point) and value is not None and (ours is None or value < ours):
                result = replace(
                    other.result,
                    bound=min(other.floor, value),
                    status=Status.OPTIMAL if value <= other.floor else Status.FEASIBLE,
                    message="found for another budget",
                )
                point = replace(other, budgets=point.budgets, result=result)
        made.append(point)
    return tuple(reversed(made))


def _with_bounds_of_larger(point: ParetoPoint, points: Sequence[ParetoPoint]) -> ParetoPoint:
    """The point with the highest bound of those that have no less memory, which holds for it, too."""
    larger = (other.result for other in points if _fits(point, other))
    return replace(point, result=reduce(with_best_bound, larger, point.result))


def _fits(one: ParetoPoint, other: ParetoPoint) -> bool:
    """Whether what fits the budgets of one fits those of the other."""
    return one.budgets.keys() == other.budgets.keys() and all(
        one.budgets[name] <= size for name, size in other.budgets.items()
    )


def _best_of(problem: Problem, result: SolveResult, schedules: list[Schedule]) -> SolveResult:
    """`result`, with the best of `schedules` that fits if that is better."""
    request = Request(result.objective)
    for schedule in schedules:
        value = request.value_of(problem, schedule)
        if value is not None and (result.value is None or value < result.value):
            is_proven = result.status is Status.OPTIMAL or value <= result.bound
            result = replace(
                result,
                schedule=schedule,
                value=value,
                bound=min(result.bound, value),
                status=Status.OPTIMAL if is_proven else Status.FEASIBLE,
                diagnosis=None,
                message="found for another budget",
            )
    return result
