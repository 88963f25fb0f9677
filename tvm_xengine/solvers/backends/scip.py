"""SCIP (pyscipopt): mixed-integer linear and quadratic programs, free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
    import pyscipopt


def solve_program(
    program: Program, options: BackendOptions, report: Report
) -> Answer | Unavailable:
    """The answer of SCIP; products become rows, since its objective is linear."""
    try:
        import pyscipopt
    except ImportError as error:
        return Unavailable(f"pyscipopt is not installed ({error})")
    model = pyscipopt.Model()
    model.hideOutput()
    model.setParam("limits/time", options.time_limit_s)
    model.setParam("limits/gap", options.gap_ratio)
    model.setParam("randomization/randomseedshift", options.seed)
    columns = _write(model, program)
    if options.start is not None:
        _add_start(model, columns, options.start)
    model.includeEventhdlr(_watcher(program, columns, report), "incumbents", "reports them")
    model.optimize()
    return _answer(model, program, columns)


def _write(model: pyscipopt.Model, program: Program) -> list[pyscipopt.Variable]:
    import pyscipopt

    columns = [
        model.addVar(vtype="I" if integer else "C", lb=lower, ub=upper, obj=cost)
        for integer, lower, upper, cost in zip(
            program.is_integer.tolist(),
            _bounds(program.lower),
            _bounds(program.upper),
            program.cost.tolist(),
            strict=True,
        )
    ]
    for row, (lower, upper) in enumerate(
        zip(program.row_lower.tolist(), program.row_upper.tolist(), strict=True)
    ):
        entries = slice(program.starts[row], program.starts[row + 1])
        expression = pyscipopt.quicksum(
            value * columns[column]
            for column, value in zip(
                program.columns[entries].tolist(), program.values[entries].tolist(), strict=True
            )
        )
        if lower == upper:
            model.addCons(expression == lower)
            continue
        if np.isfinite(lower):
            model.addCons(expression >= lower)
        if np.isfinite(upper):
            model.addCons(expression <= upper)
    if program.is_quadratic:
        product = model.addVar(vtype="C", lb=None, ub=None, obj=1.0)
        pairs = zip(
            program.quadratic_columns.tolist(), program.quadratic_values.tolist(), strict=True
        )
        model.addCons(
            pyscipopt.quicksum(value * columns[u] * columns[v] for (u, v), value in pairs)
            <= product
        )
    return columns


def _bounds(values: NDArray[np.float64]) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _add_start(
    model: pyscipopt.Model, columns: list[pyscipopt.Variable], start: NDArray[np.float64]
) -> None:
    solution = model.createPartialSol()
    for column, value in zip(columns, start.tolist(), strict=True):
        model.setSolVal(solution, column, value)
    model.addSol(solution)


def _watcher(
    program: Program, columns: list[pyscipopt.Variable], report: Report
) -> pyscipopt.Eventhdlr:
    import pyscipopt

    class Watcher(pyscipopt.Eventhdlr):  # type: ignore[misc]
        """Reports every better solution as it is found."""

        def eventinit(self) -> None:
            self.model.catchEvent(pyscipopt.SCIP_EVENTTYPE.BESTSOLFOUND, self)

        def eventexit(self) -> None:
            self.model.dropEvent(pyscipopt.SCIP_EVENTTYPE.BESTSOLFOUND, self)

        def eventexec(self, event: pyscipopt.scip.Event) -> None:
            x = _values(self.model, columns)
            report(Incumbent(x, program.objective(x), float(self.model.getDualbound())))

    return Watcher()


def _values(model: pyscipopt.Model, columns: list[pyscipopt.Variable]) -> NDArray[np.float64]:
    solution = model.getBestSol()
    return np.array([model.getSolVal(solution, column) for column in columns])


def _answer(model: pyscipopt.Model, program: Program, columns: list[pyscipopt.Variable]) -> Answer:
    status = model.getStatus()
    if status in ("infeasible", "inforunbd"):
        return Answer(Outcome.INFEASIBLE, None, None, -np.inf, status)
    bound = float(model.getDualbound())
    if abs(bound) >= 1e19:  # SCIP's infinity is 1e20
        bound = -np.inf
    if model.getNSols() == 0:
        return Answer(Outcome.UNKNOWN, None, None, bound, status)
    x = _values(model, columns)
    outcome = Outcome.OPTIMAL if status in ("optimal", "gaplimit") else Outcome.FEASIBLE
    return Answer(outcome, x, program.objective(x), bound, status)
