"""The searches are compiled before the time limit of a solve begins."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import cache

import pytest

from tests.solvers.samples.networks import chain, pair
from tests.solvers.test_variants import problem_of as problem_with_variants
from tvm_xengine.scheduling.arena import packing
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers import first_use
from tvm_xengine.solvers.astar.shortest import advance, begin
from tvm_xengine.solvers.first_use import compile_plan_for, compile_searches_for
from tvm_xengine.solvers.local_search.compiled.anneal import anneal
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.result import Limits, Objective, Status
from tvm_xengine.solvers.solve import solve


@pytest.fixture
def tight() -> Problem:
    return pair(chain(3), 0.8, slow=2.0, link_gb_s=1.0)


@pytest.fixture(autouse=True)
def _nothing_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ready is noted for one test, so that a thread of an earlier one notes nothing here."""
    monkeypatch.setattr(first_use, "_searches_ready", cache(lambda: first_use.compile_searches()))
    monkeypatch.setattr(first_use, "_packing_ready", cache(lambda: packing.compile_packing()))


class Compiling:
    """Stands for a compiler that takes until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, silent_s: float = 0.0) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        monkeypatch.setattr(first_use, "compile_searches", self)
        monkeypatch.setattr(first_use, "_SILENT_S", silent_s)

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


def test_what_the_compiler_lacks_is_told_to_the_one_who_waits(
    tight: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_nothing() -> None:
        raise MemoryError("Unable to allocate 137. MiB")

    monkeypatch.setattr(first_use, "compile_searches", compile_nothing)
    with pytest.raises(MemoryError, match="137"):
        compile_searches_for(tight, "auto", Objective.COST)


def test_a_plan_waits_for_the_packing_of_its_layout_with_any_solver(
    tight: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = list[str]()
    monkeypatch.setattr(packing, "compile_packing", lambda: packed.append("packed"))
    for _ in range(2):
        compile_plan_for(tight, "greedy", Objective.COST)
    assert packed == ["packed"]


def test_a_small_plan_with_room_for_everything_reads_no_compiled_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = list[str]()
    monkeypatch.setattr(packing, "compile_packing", lambda: packed.append("packed"))
    compile_plan_for(pair(chain(3), 9.0, slow=2.0, link_gb_s=1.0), "auto", Objective.COST)
    assert not packed


NOTHING_IS_COMPILED = """
import sys
from numba.core.dispatcher import Dispatcher
from tests.solvers.samples.networks import chain, pair
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.arena.order_search import compile_order_search
from tvm_xengine.scheduling.arena.packing import compile_packing
from tvm_xengine.solvers.first_use import compile_searches
from tvm_xengine.solvers.local_search.compiled.anneal import anneal
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.result import Limits, Objective

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("tvm_xengine")]
    every = [one for module in modules for one in vars(module).values() if isinstance(one, Dispatcher)]
    return {one.py_func: tuple(map(str, one.signatures)) for one in every if one.signatures}

compile_packing()
compile_order_search()
compile_searches()
before = compiled()
for objective in Objective.COST, Objective.MAKESPAN:
    for ratio in 9.0, 0.8:
        problem = pair(chain(12), ratio, slow=2.0, link_gb_s=1.0)
        plan_schedule(problem, PlanOptions(objective=objective, limits=Limits(2.0)))
names = {function.__name__ for function in before}
assert {"_improve_order", "improve_order"} <= names
assert compiled() == before
"""


@pytest.mark.slow
def test_what_is_compiled_first_is_all_that_plans_use() -> None:
    subprocess.run([sys.executable, "-c", NOTHING_IS_COMPILED], check=True)


def test_one_compilation_serves_problems_with_and_without_variants() -> None:
    """Another type of an argument compiles all of a search again, within the time limit of a solve."""
    for problem in (problem_with_variants(8), pair(chain(3), 0.8, slow=2.0, link_gb_s=1.0)):
        for solver in ("astar", "local-search"):
            solve(problem, solver, limits=Limits(1.0))
    entries = (begin, advance, anneal, decode)
    assert [len(entry.signatures) for entry in entries] == [1] * len(entries)
