"""Improves schedules with relaxations in the order of the best schedule so far.

They prove nothing, since another order may be better, but in a fixed order time points may be put
wherever memory is short: a few rounds lead to a solution that can be carried out as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.backends.answer import BackendOptions, RunProgram
from tvm_xengine.solvers.indexed import index_problem
from tvm_xengine.solvers.portfolio.bound import Listener, worthwhile_gap
from tvm_xengine.solvers.portfolio.options import DEFAULTS
from tvm_xengine.solvers.relaxation.choose import (
    incumbent_pressure,
    most_exceeded,
    negligible_tensors,
)
from tvm_xengine.solvers.relaxation.encode import encode_time_points
from tvm_xengine.solvers.relaxation.periods import periods_in_order
from tvm_xengine.solvers.relaxation.time_points import formulate_time_points
from tvm_xengine.solvers.request import Request


def refine(
    problem: Problem,
    request: Request,
    *,
    listener: Listener,
    run: RunProgram,
    on_time_points: Callable[[set[int]], None] = lambda _: None,
) -> Iterator[None]:
    """Solve relaxations in the incumbent's order, and hand every solution to the listener.

    In between a schedule that the listener proposes, though it fits no budget yet, has its order
    tried, as long as better solutions are found in that order. Waits for a first incumbent; ends when the
    time points of its order are exhausted and nothing more is proposed.

    Parameters
    ----------
    on_time_points
        Told the time points of a relaxation whose solution fits the budgets everywhere.
    """
    indexed = index_problem(problem, request.objective)
    neglected = negligible_tensors(indexed)
    indexed = replace(indexed, budget=indexed.budget - int(indexed.size[neglected].sum()))
    series = _Series()
    guess: _Series | None = None
    rounds, idle = 0, 0
    while request.remaining_s > 0.0 and idle < DEFAULTS.most_idle:
        best = listener.incumbent()
        if best is None:
            time.sleep(DEFAULTS.nap_s)
            yield
            continue
        if guess is None and rounds >= DEFAULTS.rounds_between:
            proposed = listener.proposed()
            guess, rounds = (_Series(*proposed) if proposed else None), 0
        at = guess or series
        schedule = at.schedule or best[1]
        order = indexed.first_runs(schedule)
        pressure = incumbent_pressure(indexed, schedule)
        fresh = [i for i in order if i not in at.time_points]
        rounds += 1
        if not fresh or len(at.time_points) > DEFAULTS.most_time_points:
            guess, idle = None, idle + (guess is None)
            yield
            continue
        idle = 0
        if at.is_new:
            at.time_points |= most_exceeded(fresh, DEFAULTS.first_time_points, pressure)
        at.is_new = False
        model = formulate_time_points(
            indexed, periods_in_order(indexed, sorted(at.time_points), order), neglected=neglected
        )
        options = BackendOptions(
            time_limit_s=max(DEFAULTS.least_refine_s, DEFAULTS.refine_share * request.remaining_s),
            gap_ratio=worthwhile_gap(indexed, best, 0.0),
            start=encode_time_points(model, schedule),
            seed=request.seed,
        )
        answer = run(model.program, options, 0.0)
        asked = listener.on_solution(model, answer.x, schedule) if answer.x is not None else None
        fits = asked is not None and bool(asked.max() <= 1.0)
        if fits:
            on_time_points(set(at.time_points))
        is_better = answer.value is not None and answer.value < best[0]
        if guess is not None and (fits or not is_better):
            guess = None
        more = 1 + len(at.time_points) // 2
        beyond = [] if asked is None else [i for i in fresh if asked[i] > 1.0]
        at.time_points |= most_exceeded(beyond, more, asked) or most_exceeded(fresh, more, pressure)
        yield


@dataclass
class _Series:
    """Relaxations in the order of a schedule, by default the incumbent, with more and more time points."""

    schedule: Schedule | None = None
    time_points: set[int] = field(default_factory=set)
    is_new: bool = True
