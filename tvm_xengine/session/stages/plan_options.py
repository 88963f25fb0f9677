"""The options of a plan from the arguments of a caller."""

from __future__ import annotations

from tvm_xengine.model.arguments import one_of, whole_number
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.solvers.result import Limits, Objective
from tvm_xengine.solvers.solve import check_solver, refuse_uncounted


def plan_options(
    objective: str, solver: str, backend: str | None, limits: Limits, seed: int
) -> PlanOptions:
    """The options, where the solver exists, works with the backend, and counts work if limits are by it.

    Raises
    ------
    ValueError
        Where it does not, and for an unknown objective.
    """
    chosen = one_of("objective", Objective, objective)
    check_solver(solver, backend)
    refuse_uncounted(solver, limits)
    return PlanOptions(solver, chosen, limits, whole_number("seed", seed, 0), backend)
