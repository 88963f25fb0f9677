"""Tightens budgets until the address layout of a schedule fits the requested ones.

Solvers count live bytes; an address layout may need more, for holes between tensors. In that case a schedule
is asked for again under budgets that are smaller by the excess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tvm_xengine.errors import InvalidProblemError, NoScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.sizes import format_budgets
from tvm_xengine.solvers.result import SolveResult

MAX_TIGHTENINGS = 10
"""How often a schedule is asked for again; the margin grows by the excess each time."""
_LEAST_SHARE = 1 / 16
"""A margin under which nothing is found is halved down to this share: four times."""

Layout = TypeVar("Layout")


def fit_layout(
    result: SolveResult,
    lay_out: Callable[[SolveResult, int], tuple[Layout, Mapping[str, int]]],
    solve_again: Callable[[Mapping[str, int], int, SolveResult], SolveResult | None],
) -> tuple[SolveResult, Layout]:
    """A result whose layout fits, and that layout; `result` itself if that is so already.

    Parameters
    ----------
    result
        With a schedule.
    lay_out
        The layout of a result in an attempt, and by how many bytes it exceeds the budgets of
        devices; devices where it fits are left out.
    solve_again
        An answer under budgets that are smaller by these bytes, in an attempt, after a result whose
        layout did not fit; None without one.

    Raises
    ------
    NoScheduleError
        If no layout fits in `MAX_TIGHTENINGS` attempts; the message says how much more memory would suffice.
    """
    margin: dict[str, int] = {}
    share = 1.0  # of the margin that was taken off the budgets
    for attempt in range(MAX_TIGHTENINGS):
        layout, excess = lay_out(result, attempt)
        if not excess:
            return result, layout
        for name in {*margin, *excess}:
            margin[name] = int(share * margin.get(name, 0)) + excess.get(name, 0)
        found, share = None, 2.0
        while found is None:
            share /= 2
            if share < _LEAST_SHARE:
                raise NoScheduleError(_too_small(margin))
            less = {name: int(share * size) for name, size in margin.items()}
            found = solve_again(less, attempt, result)
        result = found
    raise NoScheduleError(_too_small(excess))


def with_smaller_budgets(problem: Problem, margin: Mapping[str, int]) -> Problem | None:
    """The problem under budgets that are smaller by these bytes; None where some state is larger."""
    budgets = {device.name: device.budget_bytes for device in problem.platform.devices}
    try:
        return problem.with_budgets(
            {name: max(1, budgets[name] - size) for name, size in margin.items()}
        )
    except InvalidProblemError:
        return None


def _too_small(missing: Mapping[str, int]) -> str:
    return (
        "schedules were found whose live bytes fit the budgets, but none whose address layout does;"
        f" raise the budgets by {format_budgets(missing)}"
    )
