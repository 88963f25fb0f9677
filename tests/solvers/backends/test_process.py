"""Backends in worker processes: limits, interruptions, deaths and nonsense."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np
import psutil
import pytest

from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.solvers.backends import process
from tvm_xengine.solvers.backends.answer import BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import BackendRun, News, run_backend
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


BACKENDS = ("highs", "scip", "gurobi")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_finds_the_optimum(backend: str) -> None:
    answer = run_backend(backend, knapsack(), floor=-18.0)
    assert answer.outcome is Outcome.OPTIMAL
    assert answer.value == pytest.approx(-9.0)
    assert answer.bound == pytest.approx(-9.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_impossible_program_is_infeasible(backend: str) -> None:
    builder = ProgramBuilder()
    builder.row([(int(builder.binaries(1)[0]), 1.0)], lower=2.0)
    assert run_backend(backend, builder.build()).outcome is Outcome.INFEASIBLE


def products() -> Program:
    """Minimise -x - 2y - 3z + 5xy + 5yz over binaries: best -4 at (1, 0, 1)."""
    builder = ProgramBuilder()
    x = builder.binaries(3)
    builder.minimise(x, [-1.0, -2.0, -3.0])
    builder.minimise_products(x[:2], x[1:], 5.0)
    builder.row([(int(x[0]), 1.0)], upper=1.0)
    return builder.build()


@pytest.mark.parametrize("backend", ["scip", "gurobi"])
def test_products_are_solved_where_they_can_be(backend: str) -> None:
    answer = run_backend(backend, products(), floor=-100.0)
    assert answer.x == pytest.approx(np.array([1.0, 0.0, 1.0]))


def test_products_are_refused_by_highs_with_a_reason() -> None:
    with pytest.raises(SolverUnavailableError, match="linearise"):
        run_backend("highs", products())


def test_a_licence_that_is_too_small_is_named_with_size_and_limit() -> None:
    builder = ProgramBuilder()
    x = builder.binaries(2500)
    builder.row([(int(c), 1.0) for c in x], upper=7.0)
    try:
        run_backend("gurobi", builder.build())
    except SolverUnavailableError as error:
        assert "2500 variables" in str(error)
        assert "2000 variables" in str(error)


def test_the_time_limit_holds() -> None:
    answer = run_backend("highs", market_split(), BackendOptions(time_limit_s=0.5), floor=0.0)
    assert answer.outcome in (Outcome.FEASIBLE, Outcome.UNKNOWN)
    assert answer.bound >= 0.0


def workers() -> list[psutil.Process]:
    """Workers below this process."""
    module = "tvm_xengine.solvers.backends.worker"
    return [one for one in psutil.Process().children() if module in one.cmdline()]


@contextmanager
def once_a_worker_runs(act: Callable[[psutil.Process], None]) -> Iterator[None]:
    """Let another thread act on the first worker that it sees."""

    def wait() -> None:
        while not (found := workers()):
            time.sleep(0.01)
        act(found[0])

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def test_a_killed_worker_leaves_an_answer() -> None:
    run = BackendRun("highs", market_split(), BackendOptions(time_limit_s=60.0), floor=0.0)
    with once_a_worker_runs(psutil.Process.kill):
        answer = run.answer()
    assert answer.outcome in (Outcome.FEASIBLE, Outcome.UNKNOWN)
    assert "died" in answer.message


def test_cancelling_returns_what_was_found() -> None:
    run = BackendRun("highs", market_split(), BackendOptions(time_limit_s=60.0), floor=0.0)
    with once_a_worker_runs(lambda _worker: run.cancel()):
        assert run.answer().message == "interrupted"


def test_counted_work_is_told_in_pieces_and_ends_at_the_same_point() -> None:
    def ended(after: int) -> tuple[float, list[float]]:
        pieces: list[float] = []

        def worked(work_s: float) -> bool:
            pieces.append(work_s)
            return len(pieces) < after

        options = BackendOptions(time_limit_s=60.0, counts_work=True)
        run = BackendRun(
            "highs", market_split(), options, floor=-1.0, news=News(on_work=worked), before_s=0.25
        )
        answer = run.answer()
        assert answer.message == "interrupted"
        return answer.bound, pieces

    bound, pieces = ended(after=8)
    assert pieces[0] == 0.25 and min(pieces) > 0
    assert ended(after=8) == (bound, pieces)


@pytest.mark.parametrize("line", range(12))
def test_an_interrupt_while_a_worker_starts_leaves_none(line: int) -> None:
    """A signal at each line between the decision to start a worker and the wait for it."""
    run = BackendRun("highs", market_split(), BackendOptions(time_limit_s=60.0), floor=0.0)
    lines = 0

    def at_each_line(
        frame: FrameType, event: str, _argument: object
    ) -> Callable[..., object] | None:
        nonlocal lines
        if frame.f_code.co_filename != process.__file__:
            return None
        if event == "line" and frame.f_code.co_name in ("answer", "_start", "_wait"):
            lines += 1
            if lines == line + 1:
                signal.raise_signal(signal.SIGINT)
        return at_each_line

    sys.settrace(at_each_line)
    try:
        with pytest.raises(KeyboardInterrupt):
            run.answer()
    finally:
        sys.settrace(None)
    assert workers() == []


def test_a_worker_ends_with_the_process_that_started_it() -> None:
    """Also where that one is killed, and can end nothing itself."""
    code = (
        "from tests.solvers.backends.test_process import *\n"
        "run_backend('highs', market_split(), BackendOptions(time_limit_s=60.0), floor=0.0)"
    )
    parent = psutil.Popen([sys.executable, "-c", code])
    while not (found := parent.children(recursive=True)):
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    psutil.wait_procs(found, timeout=30)
    assert not [one for one in found if one.is_running()]


def test_a_bound_below_the_floor_is_raised_and_said_so() -> None:
    answer = run_backend("highs", knapsack(), floor=-5.0)
    assert answer.bound == -9.0  # never above the value
    assert "raised" in answer.message


@pytest.mark.parametrize("backend", ["highs", "gurobi"])
def test_a_start_is_where_the_backend_begins(backend: str) -> None:
    found: list[float] = []
    options = BackendOptions(start=np.array([0.0, 1.0, 1.0, 0.0]))
    run_backend(backend, knapsack(), options, news=News(lambda _, value: found.append(value)))
    assert found == [] or found[0] == pytest.approx(-9.0)
