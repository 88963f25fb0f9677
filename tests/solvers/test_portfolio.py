"""The portfolio's loop: what it makes of events, and that it leaves nothing behind."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.solvers.samples.chains import training_chain
from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.explain.words.proof import proof_in_words
from tvm_xengine.planning.answers import with_best_bound, with_bound_of
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.portfolio import loop
from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.events import BoundProven, ScheduleFound
from tvm_xengine.solvers.portfolio.incumbent import Incumbent
from tvm_xengine.solvers.portfolio.loop import run_portfolio
from tvm_xengine.solvers.portfolio.options import DEFAULTS
from tvm_xengine.solvers.portfolio.proofs import Proofs
from tvm_xengine.solvers.portfolio.workers.choice import SEARCH, Worker
from tvm_xengine.solvers.request import Proof, Request
from tvm_xengine.solvers.result import Limits, Scope, Status
from tvm_xengine.solvers.solve import solve

PROBLEM = training_chain(12, 60)
FOUND = greedy_schedule(PROBLEM)
assert FOUND is not None
VALUE = Request().value_of(PROBLEM, FOUND)
assert VALUE is not None


def run(
    monkeypatch: pytest.MonkeyPatch, workers: dict[str, Worker], request: Request | None = None
) -> tuple[Incumbent, Proof, str]:
    """What the loop makes of the workers."""
    monkeypatch.setattr(loop, "workers_for", lambda _task: workers)
    best = Incumbent(PROBLEM, request or Request(limits=Limits(20.0)))
    proof, _, note = run_portfolio(best, 0.0, DEFAULTS)
    return best, proof, note


def wait(task: Task) -> None:
    """Work on until it is over."""
    task.board.stop.wait()


def find(task: Task) -> None:
    """Find a schedule and go on."""
    assert FOUND is not None
    task.post(ScheduleFound(FOUND, "test"))
    wait(task)


def test_a_bound_at_the_value_of_the_best_ends_the_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(task: Task) -> None:
        while task.best is None:
            pass
        assert VALUE is not None
        task.post(BoundProven(Proof(VALUE)))
        wait(task)

    best, proof, note = run(monkeypatch, {SEARCH: find, "prover": prove})
    assert (best.schedule, best.source) == (FOUND, "test")
    assert (proof.bound, note) == (VALUE, "")


@pytest.mark.parametrize(("bound_ratio", "is_found"), [(0.5, True), (0.999, False)])
def test_a_proof_for_one_order_ends_the_solve_only_where_no_order_can_be_far_better(
    monkeypatch: pytest.MonkeyPatch, bound_ratio: float, is_found: bool
) -> None:
    assert VALUE is not None
    dear = 1.5 * VALUE  # of the schedule that is found first
    limits = Limits(4.0)
    late_s = (DEFAULTS.general_share + DEFAULTS.far_share) / 2 * limits.time_limit_s

    def prove(task: Task) -> None:
        task.post(BoundProven(Proof(bound_ratio * dear)))
        task.post(BoundProven(Proof(dear, Scope.GIVEN_ORDER)))
        wait(task)

    def search(task: Task) -> None:
        assert FOUND is not None
        task.post(ScheduleFound(FOUND, "dear", dear))
        if not task.board.stop.wait(late_s):
            task.post(ScheduleFound(FOUND, "cheap", VALUE))
        wait(task)

    best, _, _ = run(monkeypatch, {SEARCH: search, "p": prove}, Request(limits=limits))
    assert best.source == ("cheap" if is_found else "dear")


def test_what_workers_post_at_the_very_end_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(task: Task) -> None:
        wait(task)
        assert FOUND is not None
        task.post(ScheduleFound(FOUND, "late"))

    best, _, _ = run(monkeypatch, {SEARCH: late}, Request(limits=Limits(0.1)))
    assert best.schedule == FOUND


def test_a_schedule_that_the_validator_refuses_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(task: Task) -> None:
        task.post(ScheduleFound(Schedule(()), "wrong"))

    best, _, _ = run(monkeypatch, {SEARCH: wrong})
    assert best.schedule is None


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (SolverUnavailableError("highs: not installed"), "highs: not installed"),
        (KeyError("x"), "a proof was given up after KeyError: 'x'"),
    ],
)
def test_a_proof_that_is_given_up_leaves_a_note(
    monkeypatch: pytest.MonkeyPatch, error: Exception, note: str
) -> None:
    def fail(_task: Task) -> None:
        raise error

    best, proof, found = run(
        monkeypatch, {SEARCH: find, "prover": fail}, Request(limits=Limits(0.3))
    )
    assert best.schedule == FOUND
    assert proof == Proof(0.0)
    assert found == note


def test_a_search_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_task: Task) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run(monkeypatch, {SEARCH: fail})


def test_a_proof_that_nothing_fits_ends_the_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(task: Task) -> None:
        task.post(BoundProven(Proof(1.0, is_infeasible=True)))
        wait(task)

    _, proof, _ = run(monkeypatch, {SEARCH: wait, "prover": prove})
    assert proof.is_infeasible


def test_a_solve_leaves_no_thread() -> None:
    solve(training_chain(12, 48), limits=Limits(120.0, gap_ratio=0.5))  # compiles the search
    before = set(threading.enumerate())
    solve(training_chain(12, 48), limits=Limits(0.5))
    assert set(threading.enumerate()) <= before


class _InterruptedAsItStarts(threading.Thread):
    def start(self) -> None:
        super().start()
        raise KeyboardInterrupt


def test_an_interrupt_while_the_workers_are_started_ends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = set(threading.enumerate())
    request = Request(limits=Limits(20.0))
    with monkeypatch.context() as patch:
        patch.setattr(loop.threading, "Thread", _InterruptedAsItStarts)
        run(patch, {SEARCH: find, "prover": wait}, request)
    assert request.stop.is_set()
    assert set(threading.enumerate()) <= before


def test_workers_end_where_the_interrupt_came_outside_of_the_loop() -> None:
    task = Task(PROBLEM, Request())
    assert not task.is_over
    task.request.stop.set()
    assert task.is_over


def test_without_processes_for_proofs_the_search_still_answers() -> None:
    options = replace(DEFAULTS, max_columns=0, exact_ops=0)
    best = Incumbent(PROBLEM, Request(limits=Limits(1.0)))
    run_portfolio(best, PROBLEM.cheapest_us, options)
    assert best.value is not None


def test_a_value_below_a_narrow_bound_says_nothing_of_that_scope() -> None:
    proofs = Proofs(0.0, gap_ratio=0.0)
    proofs.add(Proof(10.0, Scope.GIVEN_ORDER))
    assert proofs.about(10.0, is_final=True).scope is Scope.GIVEN_ORDER
    assert proofs.about(10.0, is_final=False).scope is Scope.EVERY_SCHEDULE
    assert proofs.about(9.0, is_final=True).scope is Scope.EVERY_SCHEDULE
    assert proofs.about(11.0, is_final=True).scope is Scope.EVERY_SCHEDULE


def test_bounds_never_fall() -> None:
    proofs = Proofs(3.0, gap_ratio=0.0)
    assert not proofs.add(Proof(2.0))
    assert proofs.add(Proof(4.0))
    assert proofs.general == Proof(4.0)


def test_a_start_beyond_the_budgets_helps_the_search() -> None:
    ample = solve(training_chain(6, 1000)).schedule
    result = solve(training_chain(6, 48), start=ample, limits=Limits(10.0))
    assert result.status in (Status.OPTIMAL, Status.FEASIBLE)


def test_a_gap_in_the_graphs_order_is_told_where_it_is_smaller() -> None:
    """It holds for the budgets that were asked for, whatever answer is taken in the end."""
    found = solve(training_chain(6, 48), limits=Limits(10.0))
    assert found.value is not None
    far = replace(
        found,
        status=Status.FEASIBLE,
        bound=0.5 * found.value,
        order_bound=0.9 * found.value,
    )
    assert (far.gap, far.order_gap) == (pytest.approx(0.5), pytest.approx(0.1))
    assert with_bound_of(far, replace(found, order_bound=found.value)).order_gap == far.order_gap
    assert with_best_bound(replace(far, order_bound=0.0), far).order_gap == far.order_gap
    assert "At most 10.00 % can be saved among" in " ".join(proof_in_words(far))
    # Another order is better than all of that one; the same bound; a bound that is no news.
    for no_news in (
        replace(far, order_bound=1.01 * found.value),
        replace(far, scope=Scope.GIVEN_ORDER),
        replace(far, order_bound=0.501 * found.value),
    ):
        assert no_news.order_gap is None


def test_the_portfolio_tells_its_bound_in_the_graphs_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def proves(task: Task) -> None:
        task.post(BoundProven(Proof(VALUE - 1.0, Scope.GIVEN_ORDER)))

    monkeypatch.setattr(loop, "workers_for", lambda _task: {"p": proves})
    best = Incumbent(PROBLEM, Request(limits=Limits(20.0)))
    _, order_bound, _ = run_portfolio(best, 0.0, DEFAULTS)
    assert order_bound == VALUE - 1.0
