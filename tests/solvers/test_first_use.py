"""The searches are compiled before the time limit of a solve begins."""

from __future__ import annotations

import threading

import pytest

from tests.solvers.samples.networks import chain, pair
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers import first_use
from tvm_xengine.solvers.first_use import compile_searches_for
from tvm_xengine.solvers.result import Limits, Objective, Status
from tvm_xengine.solvers.solve import solve


@pytest.fixture
def tight() -> Problem:
    return pair(chain(3), 0.8, slow=2.0, link_gb_s=1.0)


class Compiling:
    """Stands for a compiler that takes until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, silent_s: float = 0.0) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        monkeypatch.setattr(first_use, "compile_searches", self)
        monkeypatch.setattr(first_use, "_SILENT_S", silent_s)
        first_use._ready.cache_clear()

    def __call__(self) -> None:
        self.began.set()
        self.may_end.wait(60.0)


def test_the_limit_begins_after_it_and_it_is_said(
    tight: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling, said = Compiling(monkeypatch), list[str]()

    def heard(sentence: str) -> None:
        said.append(sentence)
        compiling.may_end.set()

    result = solve(tight, limits=Limits(time_limit_s=60.0), on_progress=heard)
    assert said[0] == "compiling the search, once on this machine"
    assert compiling.began.is_set()
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("solver", ["greedy", "keep-all", "tight"])
def test_solvers_without_a_search_do_not_wait(
    tight: Problem, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling = Compiling(monkeypatch)
    compile_searches_for(tight, solver, Objective.COST)
    assert not compiling.began.is_set()


def test_budgets_with_room_for_everything_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling = Compiling(monkeypatch)
    compile_searches_for(pair(chain(3), 9.0, slow=2.0, link_gb_s=1.0), "auto", Objective.COST)
    assert not compiling.began.is_set()


def test_an_interrupt_comes_through(tight: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    compiling = Compiling(monkeypatch)

    def interrupt(_sentence: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_searches_for(tight, "auto", Objective.COST, interrupt)
    compiling.may_end.set()
