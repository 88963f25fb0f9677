"""Limits by work: the same answer in every run, however busy the machine is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.solvers.samples.chains import training_chain
from tests.solvers.samples.networks import pair, residual, transformer, with_storage
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.problem import Problem, write_problem
from tvm_xengine.solvers.backends.answer import Answer, Outcome
from tvm_xengine.solvers.backends.process import BackendRun
from tvm_xengine.solvers.result import Limits, Objective, SolveResult, StopReason
from tvm_xengine.solvers.solve import SOLVERS, solve
from tvm_xengine.solvers.time_source import MACHINE_TIME, CountedWork, ThreadTime

COUNTING = sorted(name for name, entry in SOLVERS.items() if entry.counts_work)


def told(result: SolveResult) -> tuple[object, ...]:
    """All that a result says."""
    schedule = result.schedule
    return (
        None if schedule is None else schedule.steps,
        *(result.value, result.bound, result.status, result.stopped_by, result.solve_s),
        *(result.solver, result.message),
    )


@pytest.fixture
def busy() -> object:
    """Threads that take the processor from everything else."""
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            pass

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


def answers(problem: Problem, solver: str, units: float, objective: Objective) -> SolveResult:
    return solve(problem, solver, limits=Limits.by_work(units), objective=objective)


@pytest.mark.parametrize("solver", COUNTING)
def test_a_solver_that_counts_its_work_says_the_same_twice(solver: str) -> None:
    problem = training_chain(30, 60)
    first, second = (answers(problem, solver, 0.4, Objective.COST) for _ in range(2))
    assert told(first) == told(second)
    assert first.is_by_work


@pytest.mark.parametrize("is_in_process", [False, True])
def test_an_interrupt_ends_a_solve_by_work_with_its_best_schedule(
    is_in_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_run: BackendRun, stop: threading.Event) -> Answer:
        if not is_in_process:
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGINT)  # for the thread of the search, which waits
        assert stop.wait(20)
        return Answer(Outcome.UNKNOWN, None, None, 0.0)

    monkeypatch.setattr(BackendRun, "answer", interrupted)
    found = answers(training_chain(30, 60), "auto", 50.0, Objective.COST)
    assert found.stopped_by is StopReason.INTERRUPTED
    assert found.schedule is not None
    assert found.solve_s < 25


@pytest.mark.slow
@pytest.mark.parametrize("objective", [Objective.COST, Objective.MAKESPAN])
def test_the_portfolio_says_the_same_on_a_busy_machine(objective: Objective, busy: object) -> None:
    problem = training_chain(30, 60)
    first, second = (answers(problem, "auto", 1.5, objective) for _ in range(2))
    assert told(first) == told(second)
    assert first.schedule is not None


def test_a_limit_of_work_ends_a_solve_and_says_so() -> None:
    found = answers(training_chain(60, 100), "local-search", 0.2, Objective.COST)
    assert found.stopped_by is StopReason.WORK
    assert 0.2 <= found.solve_s <= 0.3


@pytest.mark.parametrize("objective", [Objective.COST, Objective.MAKESPAN])
def test_proofs_take_no_work_from_the_search(objective: Objective) -> None:
    problem = pair(transformer(2), 0.4, slow=2.0, link_gb_s=2.0)
    with_proofs = answers(problem, "auto", 0.6, objective)
    alone = answers(problem, "local-search", 0.6, objective)
    assert with_proofs.value is not None and alone.value is not None
    assert with_proofs.value <= alone.value


def test_a_step_of_a_proof_is_not_longer_than_the_limit() -> None:
    problem = with_storage(residual(3), 0.4, link_gb_s=1.0)
    found = answers(problem, "auto", 0.6, Objective.COST)
    assert found.stopped_by is StopReason.WORK
    assert 0.6 <= found.solve_s <= 0.7


def test_a_poor_schedule_ends_a_solve_by_work_after_its_share() -> None:
    problem = training_chain(60, 100)
    limits = replace(Limits.by_work(2.0), poor_share=0.25, good_ratio=1.0)
    assert 0.5 <= solve(problem, limits=limits).solve_s <= 0.6


_PLAN = """
import sys
from pathlib import Path
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.problem import read_problem
from tvm_xengine.solvers.result import Limits
plan = plan_schedule(read_problem(Path(sys.argv[1])), PlanOptions(limits=Limits.by_work(1.0)))
print(plan.schedule.steps, plan.arenas.offset_bytes, plan.result.bound, plan.result.solve_s)
"""


@pytest.mark.slow
def test_processes_with_other_hashes_make_the_same_plan(tmp_path: Path) -> None:
    problem = training_chain(40, 80)
    write_problem(problem, tmp_path / "problem.json")
    printed = {
        subprocess.run(
            [sys.executable, "-c", _PLAN, str(tmp_path / "problem.json")],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_plans_by_work_are_not_worse_than_greedy_ones() -> None:
    problem = training_chain(30, 60)
    plan = plan_schedule(problem, PlanOptions(limits=Limits.by_work(1.0)))
    greedy = solve(problem, "greedy")
    assert plan.result.value is not None and greedy.value is not None
    assert plan.result.value <= greedy.value


@pytest.mark.parametrize("solver", ["tight", "miqp", "checkmate"])
def test_a_solver_that_counts_nothing_is_refused(solver: str) -> None:
    with pytest.raises(ValueError, match="does not count its work; a work limit needs one of"):
        solve(training_chain(6, 60), solver, limits=Limits.by_work(1.0))


@pytest.mark.parametrize("units", [0.0, -1.0, float("inf")])
def test_limits_of_no_work_or_endless_work_are_refused(units: float) -> None:
    with pytest.raises(ValueError, match="work_limit must be > 0"):
        Limits.by_work(units)


def test_counted_work_passes_only_by_counting() -> None:
    clock = CountedWork()
    of_thread = ThreadTime(clock)
    of_thread.worked(1.5)
    assert clock.now_s() == of_thread.now_s() == of_thread.process_s() == 1.5
    assert of_thread.counts_work and not ThreadTime(MACHINE_TIME).counts_work
