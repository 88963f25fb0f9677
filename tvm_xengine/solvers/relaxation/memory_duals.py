"""The price of memory from the bound: the duals of the budgets in a linear relaxation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.backends.answer import BackendOptions, Outcome, RunProgram
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.relaxation.choose import neediest, pressed_ops, spread, trunk_of
from tvm_xengine.solvers.relaxation.options import DEFAULTS
from tvm_xengine.solvers.relaxation.relaxations import Relaxations
from tvm_xengine.solvers.relaxation.strong_branching import with_chosen_time_points
from tvm_xengine.solvers.result import Objective, Scope


@dataclass(frozen=True)
class MemoryDuals:
    """A bound for every schedule, and how it changes with the budgets.

    The optimum of a linear program is convex in the sides of its rows, and duals are a subgradient:
    with ``x`` more bytes on a device the optimum is at least ``bound - x * per_byte``, for negative
    ``x`` as well.

    Attributes
    ----------
    bound
        Optimum of the linear relaxation, in the unit of the objective.
    per_byte
        For each device by how much it falls with one more byte of budget, at least 0.
    """

    bound: float
    per_byte: Mapping[str, float]


def memory_duals(
    problem: Problem,
    objective: Objective,
    incumbent: Schedule,
    *,
    run: RunProgram,
    limit_s: float,
) -> MemoryDuals | None:
    """The duals of the budgets, at the time points that raise the relaxation most; None out of time.

    Parameters
    ----------
    incumbent
        Shows where memory is pressed.
    limit_s
        For each of the few programs that are solved.
    """
    is_makespan = objective is Objective.MAKESPAN
    summed = Objective.COST if is_makespan else objective
    indexed = index_problem(problem, summed, budgets_may_grow=True)
    relaxations = Relaxations(indexed, Scope.EVERY_SCHEDULE, is_makespan)
    pressed = pressed_ops(indexed, incumbent, DEFAULTS.pressed_ratio)
    trunk = set(trunk_of(indexed, pressed, DEFAULTS.pressed_ratio))
    pressed = [pair for pair in pressed if pair[0] in trunk]
    if not pressed:
        return MemoryDuals(0.0, {d.name: 0.0 for d in problem.platform.devices})
    time_points = {*spread(pressed, 1), *neediest(indexed, [op for op, _ in pressed])}
    candidates = [op for op, _ in pressed]
    time_points = with_chosen_time_points(
        relaxations, time_points, candidates, run=run, limit_s=limit_s
    )
    model = relaxations.at(time_points)
    answer = run(model.program.relaxed(), BackendOptions(limit_s), -np.inf)
    if answer.outcome is not Outcome.OPTIMAL or answer.duals is None or answer.value is None:
        return None
    falls = [-float(answer.duals[list(rows)].sum()) for rows in model.budget_rows]
    per_byte = {
        device.name: max(0.0, fall) / indexed.unit_bytes
        for device, fall in zip(problem.platform.devices, falls, strict=True)
    }
    return MemoryDuals(answer.value, per_byte)
