"""What cannot be solved is refused, or proven impossible, with a reason; what dies is survived."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.chains import training_chain
from tests.solvers.samples.networks import chain, single
from tests.strategies import cases, problems
from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.solvers.reach import cut_off
from tvm_xengine.solvers.result import Limits, Status
from tvm_xengine.solvers.solve import solve


@pytest.mark.parametrize("solver", ["auto", "astar", "greedy", "tight", "miqp", "checkmate"])
def test_a_tensor_larger_than_the_budget_of_its_home_has_no_schedule(solver: str) -> None:
    graph = OpGraph(
        (Tensor("w", 64, Role.PARAMETER), Tensor("y", 4)), (Op("f", "k", ("w",), ("y",)),), ("y",)
    )
    problem = Problem(graph, Platform((Device("cpu", "llvm", 63),)), {"f": {"cpu": OpCost(1.0)}})
    result = solve(problem, solver, limits=Limits(2.0))
    assert result.schedule is None and result.diagnosis is not None
    assert "cpu" in result.diagnosis.binding
    assert result.status is Status.INFEASIBLE or solver in ("greedy", "tight", "checkmate")


@pytest.mark.parametrize("solver", ["auto", "tight", "checkmate"])
def test_where_every_op_fits_alone_the_reason_says_so(solver: str) -> None:
    """Two results that are kept, and the input of both."""
    tensors = (Tensor("x", 40, Role.BATCH), Tensor("y", 40), Tensor("z", 40))
    ops = (Op("f", "k", ("x",), ("y",)), Op("g", "k", ("x",), ("z",)))
    graph = OpGraph(tensors, ops, ("y", "z"))
    costs = {name: {"cpu": OpCost(1.0)} for name in ("f", "g")}
    problem = Problem(graph, Platform((Device("cpu", "llvm", 100),)), costs)
    result = solve(problem, solver, limits=Limits(5.0))
    assert result.diagnosis is not None
    assert (
        "beside the tensors that later ops still need; the closest alone: op"
        in result.diagnosis.binding
    )
    is_narrow = result.status is not Status.INFEASIBLE
    assert is_narrow == (solver != "auto") == ("another order, may fit" in result.message)


def apart(links: tuple[Link, ...]) -> Problem:
    """State on device a, an op that reads it and runs on device b only, and these links."""
    graph = OpGraph(
        (Tensor("w", 4, Role.PARAMETER), Tensor("y", 4)), (Op("f", "k", ("w",), ("y",)),), ("y",)
    )
    platform = Platform((Device("a", "llvm", 100), Device("b", "llvm", 100)), links)
    return Problem(graph, platform, {"f": {"b": OpCost(1.0)}})


@pytest.mark.parametrize("solver", ["auto", "tight", "greedy"])
def test_devices_that_no_link_joins_are_named(solver: str) -> None:
    result = solve(apart(()), solver, limits=Limits(time_limit_s=10.0))
    assert result.schedule is None
    assert result.diagnosis is not None
    assert result.diagnosis.binding == (
        "op f can run on ['b'], but w, which it reads, can only be on ['a'], and no links lead from"
        " there"
    )
    assert result.diagnosis.working_budget_bytes is None


def test_a_link_the_wrong_way_does_not_help() -> None:
    assert cut_off(apart((Link("b", "a", 1.0, 1.0),))) is not None
    assert cut_off(apart((Link("a", "b", 1.0, 1.0),))) is None


@settings(max_examples=cases(60))
@given(problem=problems(max_devices=3, max_ops=4))
def test_what_is_cut_off_has_no_schedule(problem: Problem) -> None:
    if cut_off(problem) is not None:
        assert solve_exhaustively(problem).is_infeasible


@pytest.mark.parametrize("compute_us", [float("nan"), float("inf"), -1.0, 0.0])
def test_costs_that_are_no_times_never_reach_a_solver(compute_us: float) -> None:
    with pytest.raises(InvalidProblemError, match="compute_us must be finite and > 0"):
        OpCost(compute_us)


def test_killed_workers_do_not_kill_the_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []

    class KilledAtOnce(subprocess.Popen[bytes]):
        """A process that is killed as soon as it has started."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.kill()
            killed.append(self.wait())

    monkeypatch.setattr(subprocess, "Popen", KilledAtOnce)
    result = solve(single(chain(8), 0.5), limits=Limits(time_limit_s=4.0))
    assert killed
    assert set(killed) == {-signal.SIGKILL}
    assert result.status is Status.FEASIBLE
    assert result.schedule is not None
    assert 0 < result.bound <= result.value  # type: ignore[operator]


def test_a_value_within_the_gap_asked_for_is_not_called_optimal() -> None:
    result = solve(training_chain(12, 60), limits=Limits(time_limit_s=10.0, gap_ratio=0.5))
    assert result.gap is not None
    assert (result.status is Status.OPTIMAL) == (result.gap <= 1e-6)
