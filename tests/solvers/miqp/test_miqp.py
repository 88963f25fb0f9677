"""Solver `miqp` as a whole: what it answers is executable, and what it proves is so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.chains import repeated_start, training_chain
from tests.strategies import cases, problems
from tvm_xengine.errors import UnsupportedProblemError
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.miqp.solve import DEFAULTS, solve_miqp
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import Limits, Objective, Scope, SolveResult, Status
from tvm_xengine.solvers.solve import solve

LIMIT_S = 20.0


def _found(
    problem: Problem, *, whole_cells: int, backend: str = "highs", start: Schedule | None = None
) -> SolveResult:
    # Without the portfolio's proofs, which would answer problems as small as these first.
    options = replace(
        DEFAULTS, whole_cells=whole_cells, start_share_of_whole=1e-6, start_share_of_windows=1e-6
    )
    request = Request(limits=Limits(LIMIT_S), backend=backend, solver="miqp", start=start)
    return solve_miqp(problem, request, options)


@settings(max_examples=cases(30))
@given(problem=problems(max_devices=3, max_ops=4))
def test_what_it_proves_is_so(problem: Problem) -> None:
    judged = solve_exhaustively(problem)
    if not judged.is_proven:
        return
    found = solve(problem, "miqp", limits=Limits(LIMIT_S))
    if found.schedule is None:
        assert found.status is not Status.INFEASIBLE or judged.is_infeasible
        return
    assert judged.value is not None
    assert found.value is not None
    assert simulate(problem, found.schedule).cost_us == pytest.approx(found.value)
    assert found.value >= judged.value - 1e-6
    if found.scope is Scope.EVERY_SCHEDULE:
        assert found.bound <= judged.value + 1e-6


def test_ops_that_never_run_stand_behind_what_they_read() -> None:
    """`unread` reads `a`, which runs after `b`; in the graph `unread` stands behind `b`."""
    names = ("a", "b", "unread", "c")
    tensors = (Tensor("x", 64, Role.BATCH), *(Tensor(name, 64) for name in names))
    reads = {"a": ("x",), "unread": ("a",), "b": ("x",), "c": ("a", "b")}
    ops = tuple(Op(f"make_{name}", name, reads[name], (name,)) for name in names)
    platform = Platform((Device("d", "llvm", 320),))
    costs = {op.name: {"d": OpCost(1.0)} for op in ops}
    problem = Problem(OpGraph(tensors, ops, ("c",)), platform, costs)
    start = with_frees(problem, [Compute(f"make_{name}", "d") for name in ("b", "a", "c")])
    found = _found(problem, whole_cells=10**9, start=start)
    assert found.value == pytest.approx(3.0)


@pytest.mark.parametrize("backend", ["highs", "scip", "gurobi"])
def test_the_whole_program_finds_the_optimum(backend: str) -> None:
    pytest.importorskip({"highs": "highspy", "scip": "pyscipopt", "gurobi": "gurobipy"}[backend])
    found = _found(repeated_start(12), whole_cells=10**9, backend=backend)
    assert found.value == pytest.approx(7.0)


@pytest.mark.parametrize("backend", ["highs", "gurobi"])
def test_windows_improve_a_schedule_to_the_optimum(backend: str) -> None:
    pytest.importorskip({"highs": "highspy", "gurobi": "gurobipy"}[backend])
    problem = training_chain(5, 60, parameter_bytes=4)
    start = solve(problem, "recompute-all").schedule
    assert start is not None
    best = solve(problem, "tight", limits=Limits(LIMIT_S))
    found = _found(problem, whole_cells=0, backend=backend, start=start)
    assert found.value is not None and best.value is not None
    assert found.value < simulate(problem, start).cost_us
    assert found.value == pytest.approx(best.value)


def test_a_schedule_that_the_program_lacks_is_not_called_its_optimum() -> None:
    problem = repeated_start(16)
    found = solve(problem, "miqp", limits=Limits(LIMIT_S))
    assert found.status is Status.OPTIMAL
    assert found.value == pytest.approx(6.0)


def test_a_program_that_is_too_large_is_left_to_the_portfolio() -> None:
    options = replace(DEFAULTS, most_cells=10)
    request = Request(limits=Limits(LIMIT_S), backend="highs", solver="miqp")
    found = solve_miqp(repeated_start(12), request, options)
    assert found.value == pytest.approx(7.0)
    assert "too large" in found.message


def test_the_makespan_is_refused() -> None:
    with pytest.raises(UnsupportedProblemError, match="minimises cost or energy"):
        solve(repeated_start(16), "miqp", objective=Objective.MAKESPAN)
