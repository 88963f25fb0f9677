"""The backends of the solvers: whether each solves a program here, and of which size."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_xengine.doctor.check import Check, State, in_child
from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.solvers.backends.answer import BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import BackendRun
from tvm_xengine.solvers.backends.table import BACKENDS, backends
from tvm_xengine.solvers.program import Program, ProgramBuilder
from tvm_xengine.solvers.solve import solvers

_TIME_LIMIT_S = 20.0
"""More than a backend needs for what presolve alone answers, on a machine that is busy."""
_SMALL, _LARGE = 2, 2001
"""Columns of the programs: one beyond what Gurobi's licence without cost takes."""
_REMEDY = {
    "highs": "pip install highspy",
    "scip": "pip install pyscipopt",
    "gurobi": "pip install gurobipy",
    "cp-sat": 'pip install "tvm-xengine[retention]"',
}
_LICENCE = {
    "highs": "free (MIT)",
    "scip": "free (Apache 2.0)",
    "cp-sat": "free (Apache 2.0)",
    "gurobi": "full licence",
}
_LIMITED = {"gurobi": "size-limited licence: at most 2,000 variables and 2,000 rows"}
"""What a backend says of itself that solves only small programs."""
_REQUIRED = "highs"
"""The backend of the default solver."""


def backend_checks() -> Iterator[Check]:
    """Every backend of this package, and what other packages add."""
    for name in BACKENDS:
        yield _cp_sat() if name == "cp-sat" else backend_check(name)
    for kind, plugged in (("backend", backends().plugged), ("solver", solvers().plugged)):
        for name, place in plugged.items():
            yield Check("solvers", name, State.WORKS, f"{kind} of another package: {place.value}")


def backend_check(name: str) -> Check:
    """Whether a backend solves a small program, and one that is too large for a trial licence."""
    is_required = name == _REQUIRED
    small = _refusal(name, _SMALL)
    if small is not None:
        state = State.MISSING if "not installed" in small else State.BROKEN
        return Check("solvers", name, state, small, is_required, _REMEDY.get(name, ""))
    large = _refusal(name, _LARGE)
    if large is None:
        return Check("solvers", name, State.WORKS, _LICENCE.get(name, ""), is_required)
    remedy = (
        "place a licence file as grbgetkey writes it (academic ones are free: www.gurobi.com)"
        if name == "gurobi"
        else ""
    )
    return Check("solvers", name, State.LIMITED, _LIMITED.get(name, large), is_required, remedy)


def _cp_sat() -> Check:
    """CP-SAT solves programs of another kind; loading it is what can fail."""
    works, said = in_child("from ortools.sat.python import cp_model; cp_model.CpSolver()")
    if works:
        return Check("solvers", "cp-sat", State.WORKS, _LICENCE["cp-sat"])
    state = State.MISSING if "No module named" in said else State.BROKEN
    return Check("solvers", "cp-sat", state, said, remedy=_REMEDY["cp-sat"])


def _refusal(name: str, columns: int) -> str | None:
    """Why a backend does not solve a program with so many columns; None where it does."""
    run = BackendRun(name, _program(columns), BackendOptions(_TIME_LIMIT_S, 0.0))
    try:
        answer = run.answer()
    except SolverUnavailableError as error:
        return str(error)
    if answer.outcome is not Outcome.OPTIMAL:
        return f"expected an optimal solution of {columns} columns, found {answer.outcome.value}"
    return None


def _program(columns: int) -> Program:
    """Minimise the sum of binaries of which at least one is 1."""
    builder = ProgramBuilder()
    every = builder.binaries(columns)
    builder.minimise(every, [1.0] * columns)
    builder.row([(int(column), 1.0) for column in every], lower=1.0)
    return builder.build()
