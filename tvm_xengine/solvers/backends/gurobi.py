"""Gurobi (gurobipy): mixed-integer linear and quadratic programs; needs a licence for real sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tvm_xengine.solvers.backends.answer import (
    Answer,
    BackendOptions,
    Incumbent,
    Outcome,
    Report,
    Unavailable,
)
from tvm_xengine.solvers.program import Program

if TYPE_CHECKING:
    import gurobipy

_SIZE_LIMITED = 10010
"""Gurobi's error code for a model that is too large for the licence."""


def solve_program(
    program: Program, options: BackendOptions, report: Report
) -> Answer | Unavailable:
    """The answer of Gurobi."""
    try:
        import gurobipy
    except ImportError as error:
        return Unavailable(f"gurobipy is not installed ({error})")
    try:
        environment = gurobipy.Env(params={"OutputFlag": 0})
        model = gurobipy.Model(env=environment)
        columns = _write(model, program)
        model.Params.TimeLimit = options.time_limit_s
        model.Params.MIPGap = max(options.gap_ratio, 1e-7)
        model.Params.Threads = options.threads
        model.Params.Seed = options.seed
        if options.start is not None:
            columns.Start = options.start  # type: ignore[assignment]

        def watch(model: gurobipy.Model, where: int) -> None:
            if where == gurobipy.GRB.Callback.MIPSOL:
                x = np.asarray(model.cbGetSolution(columns), np.float64)
                bound = model.cbGet(gurobipy.GRB.Callback.MIPSOL_OBJBND)
                report(Incumbent(x, program.objective(x), float(bound)))

        model.optimize(watch)
    except gurobipy.GurobiError as error:
        if error.errno == _SIZE_LIMITED:
            return Unavailable(
                f"the model has {program.column_count} variables and {program.row_count} rows"
                f" ({len(program.quadratic_values)} products), more than the size-limited licence"
                " allows (2000 variables, 2000 rows, fewer with products); install a full licence"
                " or use highs or scip"
            )
        return Unavailable(f"Gurobi refused to run: {error}")
    return _answer(model, program, columns)


def _write(model: gurobipy.Model, program: Program) -> gurobipy.MVar:
    from scipy.sparse import csr_matrix

    kinds = np.where(program.is_integer, "I", "C")
    columns = model.addMVar(
        program.column_count, lb=program.lower, ub=program.upper, obj=program.cost, vtype=kinds
    )
    matrix = csr_matrix(
        (program.values, program.columns, program.starts),
        shape=(program.row_count, program.column_count),
    )
    above = np.flatnonzero(np.isfinite(program.row_lower))
    below = np.flatnonzero(np.isfinite(program.row_upper))
    model.addMConstr(matrix[above], columns, ">", program.row_lower[above])
    model.addMConstr(matrix[below], columns, "<", program.row_upper[below])
    if program.is_quadratic:
        u, v = program.quadratic_columns.T
        shape = (program.column_count, program.column_count)
        products = csr_matrix((program.quadratic_values, (u, v)), shape=shape)
        model.setMObjective(products, program.cost, 0.0, columns, columns, columns)
    return columns


def _answer(model: gurobipy.Model, program: Program, columns: gurobipy.MVar) -> Answer:
    from gurobipy import GRB

    if model.Status in (GRB.INFEASIBLE, GRB.INF_OR_UNBD):
        return Answer(Outcome.INFEASIBLE, None, None, -np.inf, "infeasible")
    is_integer = bool(program.is_integer.any())
    bound = float(model.ObjBound) if is_integer or model.Status == GRB.OPTIMAL else -np.inf
    message = {GRB.OPTIMAL: "optimal", GRB.TIME_LIMIT: "time limit"}.get(
        model.Status, f"status {model.Status}"
    )
    if model.SolCount == 0:
        return Answer(Outcome.UNKNOWN, None, None, bound, message)
    x = np.asarray(columns.X, np.float64)
    outcome = Outcome.OPTIMAL if model.Status == GRB.OPTIMAL else Outcome.FEASIBLE
    return Answer(outcome, x, program.objective(x), bound, message)
