"""Another package adds a solver, and a backend of linear programs with integers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvm_xengine as xe
from tests.extensions.toy_package import installed
from tests.solvers.samples.chains import repeated_start, training_chain
from tvm_xengine.errors import ExtensionError, SolverUnavailableError
from tvm_xengine.scheduling.problem import write_problem
from tvm_xengine.solvers.result import Limits, Status
from tvm_xengine.solvers.solve import solve, solvers

TOY = """
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from tvm_xengine.scheduling.schedule import Compute, Schedule, with_frees
from tvm_xengine.solvers.backends.answer import Answer, Outcome
from tvm_xengine.solvers.request import Proof, conclude
from tvm_xengine.solvers.result import SolveResult, Status
from tvm_xengine.solvers.solve import Solver


def solve_in_order(problem, request):
    home = problem.platform.home
    steps = [Compute(op.name, home) for op in problem.graph.ops]
    return conclude(problem, request, with_frees(problem, steps), Proof(0.0), solver="toy")


def solve_falsely(problem, request):
    return SolveResult(
        Status.OPTIMAL, Schedule(()), request.objective, 1.0, 1.0, 0.0, "false", message="lies"
    )


SOLVER = Solver(solve_in_order)
FALSE = Solver(solve_falsely)
NOTHING = Solver(lambda problem, request: None)


def solve_program(program, options, report):
    shape = (program.row_count, program.column_count)
    matrix = csr_array((program.values, program.columns, program.starts), shape)
    found = milp(
        program.cost,
        integrality=program.is_integer,
        bounds=Bounds(program.lower, program.upper),
        constraints=LinearConstraint(matrix, program.row_lower, program.row_upper),
        options={"time_limit": options.time_limit_s},
    )
    if found.status == 2:
        return Answer(Outcome.INFEASIBLE, None, None, -np.inf, "toy")
    return Answer(Outcome.OPTIMAL, found.x, found.fun, found.mip_dual_bound, "toy")


def answer_nothing(program, options, report):
    return None
"""

GROUPS = {
    "solvers": "toy = toy:SOLVER\nfalse = toy:FALSE\nnothing = toy:NOTHING\nother = toy:TOY",
    "backends": "milp = toy:solve_program\nsilent = toy:answer_nothing\nlost = toy:nowhere",
}


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with installed(TOY + "\nTOY = 1\n", GROUPS, tmp_path, monkeypatch):
        yield tmp_path


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, which finds the package as any other."""
    path = os.pathsep.join((str(folder), *filter(None, sys.path)))
    return subprocess.run(
        [sys.executable, "-m", "tvm_xengine", *arguments],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


def test_a_solver_finds_a_schedule_whose_value_is_that_of_the_validator() -> None:
    found = solve(repeated_start(16), "toy")
    assert (found.status, found.value) == (Status.FEASIBLE, 6.0)
    assert solve(repeated_start(12), "toy").schedule is None


@pytest.mark.slow
def test_a_step_is_compiled_with_it() -> None:
    step = xe.compile("mlp", batch_size=2, costs="roofline", solver="toy")
    assert "toy" in str(step.plan.plan.result.solver)


def test_a_solver_that_claims_what_its_schedule_is_not_is_refused() -> None:
    found = solve(repeated_start(16), "false")
    assert found.schedule is None
    assert found.status is Status.NO_SOLUTION
    assert "refused" in found.message


@pytest.mark.parametrize(("name", "said"), [("nothing", "a SolveResult"), ("other", "a Solver")])
def test_what_is_no_solver_is_named(name: str, said: str) -> None:
    with pytest.raises(ExtensionError, match=f"{name!r}: expected {said}"):
        solve(repeated_start(16), name)


def test_no_package_replaces_a_solver_of_this_one() -> None:
    assert [*solvers()][-4:] == ["false", "nothing", "other", "toy"]


@pytest.mark.parametrize("formulation", ["tight", "checkmate", "xengine"])
def test_a_backend_solves_every_linear_formulation(formulation: str) -> None:
    problem = training_chain(2, 64)
    found = solve(problem, formulation, "milp", limits=Limits(20.0))
    expected = solve(problem, formulation, "highs", limits=Limits(20.0))
    assert "milp" in found.solver
    assert found.value == pytest.approx(expected.value)
    assert found.status is expected.status


@pytest.mark.parametrize(
    ("name", "said"), [("silent", "expected an Answer"), ("lost", "toy:nowhere")]
)
def test_what_is_no_backend_is_named(name: str, said: str) -> None:
    with pytest.raises(SolverUnavailableError, match=f"{name}: .*{said}"):
        solve(repeated_start(16), "tight", name)


def test_the_command_line_lists_and_runs_both(toy: Path) -> None:
    shown = command(toy, "solve", "--help").stdout
    assert "toy" in shown
    assert "milp" in shown
    problem = toy / "problem.json"
    write_problem(repeated_start(16), problem)
    for options in (("--solver", "toy"), ("--solver", "tight", "--backend", "milp")):
        done = command(toy, "solve", str(problem), *options, "--json", "-")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["cost_us"] == 6.0
