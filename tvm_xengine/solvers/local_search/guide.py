"""Hands what relaxations suggest on to a search: schedules, and decisions to begin from."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import Free, Schedule, with_frees
from tvm_xengine.scheduling.simulate import live_bytes
from tvm_xengine.solvers.indexed import Floats, IndexedProblem, index_problem, summed
from tvm_xengine.solvers.local_search.compiled.decisions import (
    EVERYWHERE,
    Decisions,
)
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.local_search.compiled.scratch import (
    STEPS,
    Scratch,
    schedule_left_in,
    scratch_of,
)
from tvm_xengine.solvers.local_search.compiled.view import view_of
from tvm_xengine.solvers.local_search.encode import decisions_of
from tvm_xengine.solvers.local_search.relaxed_decisions import decisions_of_time_points
from tvm_xengine.solvers.relaxation.decode import CannotCarryOutError, decode_time_points
from tvm_xengine.solvers.relaxation.encode import encode_time_points
from tvm_xengine.solvers.relaxation.time_points import TimePointModel
from tvm_xengine.solvers.result import Objective

_logger = logging.getLogger(__name__)

_MOST_HINTS = 2
"""Suggestions that wait for the search; older ones come from worse relaxations and are dropped."""
_MOST_REPAIRS = 200
"""So many intervals are held, one after the other, to carry out a solution that cannot be as it is."""


class Guide:
    """Carries out solutions of relaxations, and hands the decisions on to a search.

    Parameters
    ----------
    on_schedule
        Called with every schedule within the budgets that a solution leads to.
    best_schedule
        Gives the best schedule so far, if any. Solutions for every order leave open what comes
        first within a period: they are carried out in its order and in that of the graph, in turn.
    """

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        on_schedule: Callable[[Schedule], None],
        best_schedule: Callable[[], Schedule | None] = lambda: None,
    ) -> None:
        self._indexed = index_problem(problem, summed(objective))
        self._view = view_of(self._indexed, by_makespan=objective is Objective.MAKESPAN)
        self._scratch = scratch_of(self._indexed)
        self._on_schedule = on_schedule
        self._best_schedule = best_schedule
        self._is_turn_of_graph = True
        self._hints: deque[Decisions] = deque(maxlen=_MOST_HINTS)
        self._proposed: tuple[Schedule, set[int]] | None = None

    def take(
        self, model: TimePointModel, x: NDArray[np.float64], near: Schedule | None = None
    ) -> Floats | None:
        """Share of a budget that the solution asks for around each op's first run, shape (n,).

        None where it cannot be carried out. What the solution has in common with the schedule
        `near`, which has the order of first runs of `model`, is done as there.
        """
        order = self._order(model.indexed, near)
        exact = self._carry_out_exactly(model, x, order, is_proposal=near is None)
        projected = encode_time_points(model, near) if near is not None else None
        base = None
        if near is not None and projected is not None:
            base = decisions_of(self._indexed, near), projected
        for holds in (False, True):
            decisions = decisions_of_time_points(
                model, x, holds_what_returns=holds, order=order, near=base
            )
            value, excess = self._carried_out(decisions)
            if np.isfinite(value):
                break
        else:
            return exact
        if excess == 0.0:
            self._on_schedule(schedule_left_in(self._indexed, self._scratch))
        self._hints.append(decisions)
        if exact is not None:
            return exact
        pressure = _pressure_of_places(self._indexed, self._scratch, len(decisions.order))
        return pressure[decisions.position]

    def _order(self, indexed: IndexedProblem, near: Schedule | None) -> Sequence[int]:
        """That of `near`; without it in turn that of the best schedule and that of the graph."""
        if near is None:
            self._is_turn_of_graph = not self._is_turn_of_graph
            near = None if self._is_turn_of_graph else self._best_schedule()
        return range(indexed.op_count) if near is None else indexed.first_runs(near)

    def _carry_out_exactly(
        self,
        model: TimePointModel,
        x: NDArray[np.float64],
        order: Sequence[int],
        *,
        is_proposal: bool,
    ) -> Floats | None:
        """Follow the solution to the letter; the share of a budget asked for around first runs."""
        indexed, problem = model.indexed, self._indexed.problem
        try:
            written = decode_time_points(model, x, order)
            schedule = with_frees(problem, [step for step, _ in written])
            live = live_bytes(problem, schedule, trace_residency(problem, schedule))
        except (CannotCarryOutError, InvalidScheduleError) as error:
            _logger.debug("a solution of a relaxation is not carried out exactly: %r", error)
            return None
        asked = np.max(
            [np.array(live[d.name]) / max(1, d.budget_bytes) for d in problem.platform.devices],
            axis=0,
        )
        is_real = [not isinstance(step, Free) for step in schedule.steps]
        pressure = np.zeros(indexed.op_count)
        np.maximum.at(pressure, [op for _, op in written], asked[is_real])
        if pressure.max() <= 1.0:
            self._on_schedule(schedule)
        elif is_proposal:
            self._proposed = schedule, set(model.time_points(x).tolist())
        return pressure

    def _carried_out(self, x: Decisions) -> tuple[float, float]:
        """What `x` comes to, after holding all that could not be brought back otherwise."""
        value, excess = decode(self._view, x, self._scratch)
        for _ in range(_MOST_REPAIRS):
            missing = int(self._scratch.stack["tensor"][0])
            interval = int(self._scratch.tensor["interval"][missing])
            if np.isfinite(value) or x.keep[interval] == EVERYWHERE:
                break
            x.keep[interval], x.push[interval], x.level[interval] = EVERYWHERE, 0, 1
            value, excess = decode(self._view, x, self._scratch)
        return value, excess

    def next_hint(self) -> Decisions | None:
        """The decisions handed over last, once."""
        try:
            return self._hints.pop()
        except IndexError:
            return None

    def proposed(self) -> tuple[Schedule, set[int]] | None:
        """What the last solution led to if it fits no budget, and its time points; once."""
        found, self._proposed = self._proposed, None
        return found

    @property
    def has_hint(self) -> bool:
        """Whether `next_hint` has something."""
        return bool(self._hints)


def _pressure_of_places(indexed: IndexedProblem, scratch: Scratch, places: int) -> Floats:
    """How much of a budget is asked for while each place of the order is served, in the last decode.

    The largest over the devices of live bytes / budget, shape (places,).
    """
    steps = int(scratch.counted[STEPS])
    pressure = np.zeros(places + 1)
    at = scratch.step["place"][:steps]
    for d in range(indexed.device_count):
        np.maximum.at(pressure, at, scratch.live[d, :steps] / max(1, int(indexed.budget[d])))
    return pressure[:places]
