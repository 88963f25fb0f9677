"""Backends in worker processes: limits, interruptions, deaths and nonsense."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from tvm_xengine.solvers.backends.answer import BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import BackendRun, run_backend
from tvm_xengine.solvers.program import Program, ProgramBuilder


def knapsack() -> Program:
    """Best value 9 by items of weight 3 and 4 under 7."""
    builder = ProgramBuilder()
    x = builder.binaries(4)
    builder.minimise(x, [-3.0, -4.0, -5.0, -6.0])
    builder.row([(int(c), w) for c, w in zip(x, (2.0, 3.0, 4.0, 5.0), strict=True)], upper=7.0)
    return builder.build()


def market_split(rows: int = 6, columns: int = 50) -> Program:
    """A program that no branch and bound solves within seconds (Cornuejols and Dawande, 1998)."""
    random = np.random.default_rng(0)
    builder = ProgramBuilder()
    x = builder.binaries(columns)
    for _ in range(rows):
        weights = random.integers(0, 100, columns).astype(float)
        slack = builder.new_columns(2, upper=1e4)
        builder.minimise(slack, 1.0)
        terms = [*zip(x.tolist(), weights.tolist(), strict=True)]
        terms += [(int(slack[0]), 1.0), (int(slack[1]), -1.0)]
        half = float(weights.sum() // 2)
        builder.row(terms, lower=half, upper=half)
    return builder.build()


def test_highs_finds_the_optimum() -> None:
    answer = run_backend("highs", knapsack(), floor=-18.0)
    assert answer.outcome is Outcome.OPTIMAL
    assert answer.value == pytest.approx(-9.0)
    assert answer.bound == pytest.approx(-9.0)


def test_an_impossible_program_is_infeasible() -> None:
    builder = ProgramBuilder()
    builder.row([(int(builder.binaries(1)[0]), 1.0)], lower=2.0)
    assert run_backend("highs", builder.build()).outcome is Outcome.INFEASIBLE


def test_the_time_limit_holds() -> None:
    started = time.perf_counter()
    answer = run_backend("highs", market_split(), BackendOptions(time_limit_s=0.5), floor=0.0)
    assert time.perf_counter() - started < 5.0
    assert answer.outcome in (Outcome.FEASIBLE, Outcome.UNKNOWN)
    assert answer.bound >= 0.0


def test_a_killed_worker_leaves_an_answer() -> None:
    run = BackendRun("highs", market_split(), BackendOptions(time_limit_s=60.0), floor=0.0)
    time.sleep(0.5)
    os.kill(run._process.pid, signal.SIGKILL)
    answer = run.answer()
    assert answer.outcome in (Outcome.FEASIBLE, Outcome.UNKNOWN)
    assert "died" in answer.message


def test_cancelling_returns_what_was_found() -> None:
    run = BackendRun("highs", market_split(), BackendOptions(time_limit_s=60.0), floor=0.0)
    time.sleep(0.5)
    run.cancel()
    assert run.answer().message == "interrupted"


def test_a_bound_below_the_floor_is_raised_and_said_so() -> None:
    answer = run_backend("highs", knapsack(), floor=-5.0)
    assert answer.bound == -9.0  # never above the value
    assert "raised" in answer.message


def test_a_start_is_taken() -> None:
    found: list[float] = []
    options = BackendOptions(start=np.array([0.0, 1.0, 1.0, 0.0]))
    run_backend("highs", knapsack(), options, on_incumbent=lambda _, value: found.append(value))
    assert found == [] or found[0] == pytest.approx(-9.0)
