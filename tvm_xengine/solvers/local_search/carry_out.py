"""Carries out solutions of relaxations: schedules, and decisions for a search to begin from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import Free, Schedule, with_frees
from tvm_xengine.scheduling.simulate import live_bytes
from tvm_xengine.solvers.index_problem import index_problem, summed
from tvm_xengine.solvers.indexed import (
    Floats,
    IndexedProblem,
)
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

_MOST_REPAIRS = 200
"""So many intervals are held, one after the other, to carry out a solution that cannot be as it is.
Each takes a decode, some 20 us for a hundred ops: in all less than formulating one relaxation."""

Proposal = tuple[Schedule, frozenset[int]]
"""A schedule in a new order that is cheap but breaks a budget, and the time points at which it fits."""


@dataclass(frozen=True)
class CarriedOut:
    """Schedules and decisions from a solution of a relaxation.

    Attributes
    ----------
    schedules
        Those within the budgets.
    decisions
        For a search to begin from; None where the solution cannot be carried out.
    pressure
        Share of a budget that is asked for around each op's first run, shape (n,); None as above.
    proposal
        The schedule to the letter where it breaks a budget.
    """

    schedules: tuple[Schedule, ...] = ()
    decisions: Decisions | None = None
    pressure: Floats | None = None
    proposal: Proposal | None = None


class RelaxationDecoder:
    """Carries out solutions of relaxations, literally and as decisions of the search.

    Solutions for every order leave open what comes first within a period: they are carried out in
    the order of the best schedule and in that of the graph, in turn.
    """

    def __init__(self, problem: Problem, objective: Objective) -> None:
        self._indexed = index_problem(problem, summed(objective))
        self._view = view_of(self._indexed, by_makespan=objective is Objective.MAKESPAN)
        self._scratch = scratch_of(self._indexed)
        self._is_turn_of_graph = True

    def carry_out(
        self,
        model: TimePointModel,
        x: NDArray[np.float64],
        *,
        near: Schedule | None = None,
        best: Schedule | None = None,
    ) -> CarriedOut:
        """What the solution leads to.

        Parameters
        ----------
        near
            A schedule with the order of first runs of `model`: what the solution has in common with
            it is done as there.
        best
            The best schedule so far.
        """
        order = self._order(model.indexed, near, best)
        exact = self._to_the_letter(model, x, order, is_proposal=near is None)
        decisions, excess = self._decisions(model, x, order, near)
        if decisions is None:
            return exact
        schedules = exact.schedules
        if excess == 0.0:
            schedules += (schedule_left_in(self._indexed, self._scratch),)
        pressure = exact.pressure
        if pressure is None:
            places = len(decisions.order)
            pressure = _pressure_of_places(self._indexed, self._scratch, places)
            pressure = pressure[decisions.position]
        return CarriedOut(schedules, decisions, pressure, exact.proposal)

    def _decisions(
        self,
        model: TimePointModel,
        x: NDArray[np.float64],
        order: Sequence[int],
        near: Schedule | None,
    ) -> tuple[Decisions | None, float]:
        """Decisions that follow the solution, decoded last, and their excess over the budgets.

        None where they cannot be carried out.
        """
        base = None
        if near is not None and (projected := encode_time_points(model, near)) is not None:
            base = decisions_of(self._indexed, near), projected
        for holds in (False, True):
            decisions = decisions_of_time_points(
                model, x, holds_what_returns=holds, order=order, near=base
            )
            value, excess = self._carried_out(decisions)
            if np.isfinite(value):
                return decisions, excess
        return None, np.inf

    def _order(
        self, indexed: IndexedProblem, near: Schedule | None, best: Schedule | None
    ) -> Sequence[int]:
        """That of `near`; without it in turn that of the best schedule and that of the graph."""
        if near is None:
            self._is_turn_of_graph = not self._is_turn_of_graph
            near = None if self._is_turn_of_graph else best
        return range(indexed.op_count) if near is None else indexed.first_runs(near)

    def _to_the_letter(
        self,
        model: TimePointModel,
        x: NDArray[np.float64],
        order: Sequence[int],
        *,
        is_proposal: bool,
    ) -> CarriedOut:
        """The schedule that follows the solution exactly; None where there is none."""
        indexed, problem = model.indexed, self._indexed.problem
        try:
            written = decode_time_points(model, x, order)
            schedule = with_frees(problem, [step for step, _ in written])
            live = live_bytes(problem, schedule, trace_residency(problem, schedule))
        except (CannotCarryOutError, InvalidScheduleError) as error:
            _logger.debug("a solution of a relaxation is not carried out exactly: %r", error)
            return CarriedOut()
        asked = np.max(
            [np.array(live[d.name]) / max(1, d.budget_bytes) for d in problem.platform.devices],
            axis=0,
        )
        is_real = [not isinstance(step, Free) for step in schedule.steps]
        pressure = np.zeros(indexed.op_count)
        np.maximum.at(pressure, [op for _, op in written], asked[is_real])
        if pressure.max() <= 1.0:
            return CarriedOut((schedule,), pressure=pressure)
        time_points = frozenset(op for op in model.time_points(x).tolist() if op >= 0)
        proposal = (schedule, time_points) if is_proposal else None
        return CarriedOut(pressure=pressure, proposal=proposal)

    def _carried_out(self, x: Decisions) -> tuple[float, float]:
        """The schedule of `x`, after holding all tensors that could not be brought back otherwise."""
        value, excess = decode(self._view, x, self._scratch)
        for _ in range(_MOST_REPAIRS):
            missing = int(self._scratch.stack["tensor"][0])
            interval = int(self._scratch.tensor["interval"][missing])
            if np.isfinite(value) or x.keep[interval] == EVERYWHERE:
                break
            x.keep[interval], x.push[interval], x.level[interval] = EVERYWHERE, 0, 1
            value, excess = decode(self._view, x, self._scratch)
        return value, excess


def _pressure_of_places(indexed: IndexedProblem, scratch: Scratch, places: int) -> Floats:
    """Share of a budget that each place of the order needs in the last decode.

    The largest over the devices of live bytes / budget, shape (places,).
    """
    steps = int(scratch.counted[STEPS])
    pressure = np.zeros(places + 1)
    at = scratch.step["place"][:steps]
    for d in range(indexed.device_count):
        np.maximum.at(pressure, at, scratch.live[d, :steps] / max(1, int(indexed.budget[d])))
    return pressure[:places]
