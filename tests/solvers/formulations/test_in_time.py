"""Programs are written, and schedules replayed, within the time limit: the clock is asked meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Never

import pytest

from tests.solvers.samples.networks import residual, single, with_storage
from tvm_xengine.errors import UnsupportedProblemError
from tvm_xengine.scheduling.graph import Op, OpGraph, Tensor
from tvm_xengine.solvers.exact import solve as exact
from tvm_xengine.solvers.miqp import solve as miqp
from tvm_xengine.solvers.published import rounding
from tvm_xengine.solvers.request import Request, TimeIsUpError
from tvm_xengine.solvers.result import Limits, Status, StopReason
from tvm_xengine.solvers.solve import solve

QUESTIONS = 30
"""Until the time is over; each of the programs below asks some hundred times."""
MOST_QUESTIONS = QUESTIONS + 20
"""Until the solve is over: what the result says is asked for as well."""


@dataclass
class Asked:
    """A clock that stands still unless it is asked."""

    counts_work: bool = False
    questions: int = 0

    def now_s(self) -> float:
        self.questions += 1
        return float(self.questions)

    thread_s = process_s = now_s

    def worked(self, amount_s: float) -> None:
        del amount_s


def no_backend(*_: object, **__: object) -> Never:
    raise AssertionError("a backend is asked although the time is over")


@pytest.mark.parametrize(
    ("solver", "backend"),
    [
        *(("checkmate", None), ("poet", None), ("tight", None), ("checkmate-rounding", None)),
        *(("xengine", "highs"), ("xengine", "scip")),
    ],
)
def test_the_clock_is_asked_while_a_program_is_written(
    solver: str, backend: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (exact, rounding):
        monkeypatch.setattr(module, "run_backend", no_backend)
    clock, problem = Asked(), with_storage(residual(16), 0.5, link_gb_s=8.0)
    result = solve(problem, solver, backend, limits=Limits(float(QUESTIONS), clock=clock))
    assert (result.status, result.stopped_by) == (Status.NO_SOLUTION, StopReason.LIMIT)
    assert "the time was over before there was a program" in result.message
    assert clock.questions < MOST_QUESTIONS


@pytest.mark.parametrize("solver", ["recompute-all", "revolve", "rotor", "sqrt-n"])
def test_the_clock_is_asked_while_a_schedule_is_replayed(solver: str) -> None:
    clock, problem = Asked(), single(residual(16), 0.01)
    result = solve(problem, solver, limits=Limits(float(QUESTIONS), clock=clock))
    assert (result.status, result.stopped_by) == (Status.NO_SOLUTION, StopReason.LIMIT)
    assert clock.questions < MOST_QUESTIONS


def test_a_program_that_is_not_written_in_time_leaves_what_the_portfolio_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def over() -> Never:
        raise TimeIsUpError

    monkeypatch.setattr(Request, "looking", lambda *_: over)
    monkeypatch.setattr(miqp, "run_backend", no_backend)
    result = solve(single(residual(2), 0.5), "miqp", limits=Limits(2.0))
    assert result.schedule is not None
    assert "the program was not written in time" in result.message


@pytest.mark.parametrize(("solver", "places"), [("checkmate", "6,250,000"), ("tight", "6,252,500")])
def test_a_program_that_no_memory_holds_is_refused(solver: str, places: str) -> None:
    count = 2_500
    tensors = tuple(Tensor(f"t{k}", 64) for k in range(count))
    ops = tuple(Op(f"o{k}", f"o{k}", (f"t{k - 1}",) if k else (), (f"t{k}",)) for k in range(count))
    problem = single(OpGraph(tensors, ops, (f"t{count - 1}",)), 0.5)
    with pytest.raises(UnsupportedProblemError, match=f"2,500 ops has {places} places"):
        solve(problem, solver, limits=Limits(60.0))
