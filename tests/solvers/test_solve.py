"""The entry point: statuses, diagnosis, laws that hold for every solver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.oracles.exhaustive import solve_exhaustively
from tests.planning.turned_time import TurnedTime
from tests.solvers.samples.chains import repeated_start, training_chain
from tests.solvers.samples.networks import chain, single
from tests.strategies import problems
from tvm_xengine.scheduling.platform import Device
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers import diagnosis
from tvm_xengine.solvers.backends.table import BACKENDS
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import Limits, Status, StopReason
from tvm_xengine.solvers.solve import SOLVERS, solve
from tvm_xengine.solvers.working_set import WorkingSets


def children() -> set[str]:
    """Process ids of the processes that this one has started."""
    found = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line for line in found.stdout.splitlines() if "backends.worker" in line}


IMPORT_CHECK = (
    "import sys, tvm_xengine.solvers.solve;"
    "sys.exit(any(name.split('.')[0] in ('tvm', 'highspy', 'gurobipy', 'pyscipopt')"
    " for name in sys.modules))"
)


def test_importing_the_solvers_loads_no_compiler_and_no_backend() -> None:
    assert subprocess.run([sys.executable, "-c", IMPORT_CHECK], check=False).returncode == 0


def test_an_unknown_solver_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"auto.*got 'magic'"):
        solve(repeated_start(16), "magic")


@pytest.mark.parametrize(
    ("solver", "backend", "said"),
    [
        ("tight", "cp-sat", "highs or scip or gurobi, got 'cp-sat'"),
        ("retention", "highs", "works with backend cp-sat"),
        ("greedy", "scip", "without a backend.*tight, xengine, checkmate"),
        ("auto", "none", "works with backend highs"),
    ],
)
def test_a_backend_that_a_solver_cannot_use_is_refused_with_those_it_can(
    solver: str, backend: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        solve(repeated_start(16), solver, backend)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_is_where_the_table_says(name: str) -> None:
    assert callable(SOLVERS[name].load())
    assert set(SOLVERS[name].backends) <= set(BACKENDS)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**70])
def test_a_seed_that_no_backend_takes_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed from 0 to 2147483647, got {seed}"):
        solve(repeated_start(16), seed=seed)


@pytest.mark.parametrize(("limit_s", "gap"), [(float("inf"), 0.0), (float("nan"), 0.0), (1.0, 2.0)])
def test_limits_that_are_none_are_refused(limit_s: float, gap: float) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        Limits(limit_s, gap)


@pytest.mark.parametrize("solver", ["auto", "local-search", "tight", "astar", "greedy"])
def test_a_stopped_solve_has_a_schedule_and_says_that_it_was_interrupted(solver: str) -> None:
    stop = threading.Event()
    stop.set()
    result = solve(training_chain(12, 56), solver, stop=stop)
    assert result.schedule is not None
    assert result.stopped_by in (StopReason.INTERRUPTED, StopReason.PROOF)
    assert "interrupted" in result.message or result.stopped_by is StopReason.PROOF


@pytest.mark.parametrize("solver", ["auto", "local-search", "tight"])
def test_a_keyboard_interrupt_returns_the_best_schedule_and_leaves_no_worker(solver: str) -> None:
    problem = single(chain(30), 0.5)
    before = children()
    at_work = threading.Event()
    main = threading.get_ident()

    def interrupt() -> None:
        assert at_work.wait(60.0)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = solve(
        problem, solver, limits=Limits(60.0), on_progress=lambda _sentence: at_work.set()
    )
    thread.join()
    assert result.stopped_by is StopReason.INTERRUPTED
    assert result.schedule is not None
    assert result.diagnosis is None
    assert result.value == pytest.approx(simulate(problem, result.schedule).cost_us)
    for _ in range(600):  # one that was being started ends by itself once its input is closed
        if children() == before:
            break
        time.sleep(0.1)
    assert children() == before


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_who_gives_up_early_does_not_wait_for_budgets_that_work(share: float) -> None:
    limits = Limits(5.0, give_up_share=share)
    result = solve(repeated_start(12), "keep-all", limits=limits)
    assert result.status is Status.NO_SOLUTION
    assert (result.diagnosis is None) == (share < 1)


def test_why_a_solve_ended_is_said() -> None:
    assert solve(repeated_start(16)).stopped_by is StopReason.PROOF
    assert solve(repeated_start(12), "recompute-all").stopped_by is not StopReason.LIMIT
    searched = solve(training_chain(12, 56), "local-search", limits=Limits(0.3))
    assert searched.stopped_by is StopReason.LIMIT
    near = solve(training_chain(12, 56), limits=Limits(10.0, gap_ratio=0.9))
    assert near.stopped_by in (StopReason.GAP, StopReason.PROOF)


@pytest.mark.parametrize("solver", ["auto", "tight"])
@pytest.mark.parametrize(("budget", "cost"), [(12, 7.0), (15, 7.0), (16, 6.0)])
def test_every_solver_knows_the_optimum(solver: str, budget: int, cost: float) -> None:
    result = solve(repeated_start(budget), solver)
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(cost)


def test_a_budget_below_the_working_set_is_infeasible_and_the_op_is_named() -> None:
    result = solve(repeated_start(11))
    assert result.status is Status.INFEASIBLE
    assert result.diagnosis is not None
    assert "needs 12 bytes on cpu" in result.diagnosis.binding
    assert result.diagnosis.working_set_bytes == {"cpu": 12}
    assert result.diagnosis.working_budget_bytes is not None
    assert solve(repeated_start(result.diagnosis.working_budget_bytes["cpu"])).schedule is not None


def test_state_that_is_not_there_is_not_what_is_closest_to_a_budget() -> None:
    problem = repeated_start(100)
    devices = (*problem.platform.devices, Device("small", "llvm", 5))
    asked = replace(problem, platform=replace(problem.platform, devices=devices))
    found = WorkingSets(asked, {"b": {"cpu": 12}}, {"cpu": 0, "small": 0}).binding()
    assert "the closest alone: op b needs 12 bytes on cpu" in found


def test_a_failed_solver_does_not_claim_infeasibility() -> None:
    assert solve(repeated_start(11), "tight").status is Status.NO_SOLUTION


def test_an_ample_budget_is_answered_without_a_search() -> None:
    problem = training_chain(40, 10**6, parameter_bytes=8)
    assert solve(problem, limits=Limits(time_limit_s=1e-3)).status is Status.OPTIMAL


def test_a_smaller_budget_never_costs_less() -> None:
    values = [solve(training_chain(4, budget)).value for budget in (40, 48, 56)]
    assert all(value is not None for value in values)
    assert values == sorted(values, reverse=True)


def test_a_start_is_never_made_worse() -> None:
    problem = training_chain(6, 48)
    start = solve(problem).schedule
    again = solve(problem, start=start, limits=Limits(time_limit_s=0.1))
    assert again.value is not None
    assert start is not None
    assert again.value <= simulate(problem, start).cost_us


@settings(max_examples=8)
@given(problem=problems(max_ops=4))
def test_auto_is_never_better_than_exhaustive_search(problem: Problem) -> None:
    best = solve_exhaustively(problem)
    result = solve(problem)
    if result.status is Status.INFEASIBLE:
        assert best.is_infeasible
    if result.value is not None:
        assert best.value is not None
        assert result.value >= best.value - 1e-6
        assert result.schedule is not None
        assert result.value == pytest.approx(simulate(problem, result.schedule).cost_us)


def test_the_solvers_are_listed() -> None:
    assert {"auto", "tight", "greedy"} <= set(SOLVERS)


def test_a_look_for_budgets_that_work_begins_no_step_that_would_end_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turned = TurnedTime()
    problem = training_chain(12, 30)
    kept = diagnosis.keep_all
    began_s: list[float] = []

    def slow(asked: Problem, request: Request) -> Schedule | None:
        began_s.append(turned.at_s)
        turned.at_s += 0.6
        return kept(asked, request)

    monkeypatch.setattr(diagnosis, "keep_all", slow)
    result = solve(problem, "keep-all", limits=Limits(1.0, clock=turned))
    assert result.diagnosis is not None and result.diagnosis.working_budget_bytes is not None
    assert began_s == pytest.approx([0.0, 0.6])
