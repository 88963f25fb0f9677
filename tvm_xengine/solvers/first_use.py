"""Compiles searches and packing before the time limit of a solve begins: once on a machine, half a minute."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache

from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.published.baselines.placed import keep_all
from tvm_xengine.solvers.request import PROOF_RATIO, Request
from tvm_xengine.solvers.result import Limits, Objective
from tvm_xengine.solvers.working_set import working_sets

_SEARCHING = ("auto", "local-search", "astar", "miqp")
"""Solvers that search with compiled code."""
_SILENT_S = 1.0
"""What takes longer is said: where the compiled code is kept already, reading it takes 0.4 s."""
_MOST_OPS = 1_000
"""Of more, to see whether there is room for everything takes as long as reading the compiled code, and a plan
asks at each of its stages: 1.7 s each for 6,000 ops."""
_TICK_S = 0.1
"""An interrupt comes through so soon; it cannot while LLVM compiles a function in the same thread."""


def compile_plan_for(
    problem: Problem, solver: str, objective: Objective, say: Callable[[str], None] | None = None
) -> None:
    """Compile what a solve and the layout of its schedule will need; a layout that compiles ends late.

    Where there is room for everything, and there are few tensors, that is nothing most often.
    """
    from tvm_xengine.scheduling.arena.packing import FEW_ITEMS  # loads numba

    is_plain = len(problem.graph.tensors) <= FEW_ITEMS and not _needs_search(problem, objective)
    if not is_plain and not _packing_ready.cache_info().currsize:
        _wait_for(_packing_ready, say)
    compile_searches_for(problem, solver, objective, say)


def compile_searches_for(
    problem: Problem, solver: str, objective: Objective, say: Callable[[str], None] | None = None
) -> None:
    """Compile what a solve will need, unless its budgets have room for everything.

    A search that compiles within its time limit would have none of it left on the first use, and its
    answer would be that of the greedy solver.

    Parameters
    ----------
    say
        Called with a sentence where it takes long.
    """
    if solver not in _SEARCHING or _searches_ready.cache_info().currsize:
        return
    if solver != "auto" or _needs_search(problem, objective):
        _wait_for(_searches_ready, say)


def _wait_for(compile_all: Callable[[], None], say: Callable[[str], None] | None) -> None:
    """Compile in another thread, so that interrupts come through; what it raises is raised here."""
    failures: list[Exception] = []

    def compile_and_tell() -> None:
        try:
            compile_all()
        except Exception as error:
            failures.append(error)

    ready = threading.Thread(target=compile_and_tell, daemon=True)
    ready.start()
    ready.join(_SILENT_S)
    if ready.is_alive() and say is not None:
        say("compiling the search, once on this machine")
    while ready.is_alive():
        ready.join(_TICK_S)
    for failure in failures:
        raise failure


def compile_searches() -> None:
    """Use each compiled function on a step of three ops and two devices, without a time limit."""
    from tvm_xengine.solvers.astar.search import shortest_path  # seconds to load
    from tvm_xengine.solvers.local_search.driver import search

    problem = _small_problem()
    search(problem, evaluations=1, limits=Limits(_NO_LIMIT_S))
    shortest_path(problem, Objective.COST, capacity=_FEW_STATES)


_FEW_STATES = 10_000
"""That step has some hundred states; the memory of a search is for three million."""

_NO_LIMIT_S = 3600.0
"""Compiling takes minutes on a busy machine, and a search that is over compiles no more."""


@cache
def _packing_ready() -> None:
    from tvm_xengine.scheduling.arena.order_search import compile_order_search  # loads numba
    from tvm_xengine.scheduling.arena.packing import compile_packing

    compile_packing()
    compile_order_search()


@cache
def _searches_ready() -> None:
    compile_searches()


def _needs_search(problem: Problem, objective: Objective) -> bool:
    """Whether the default solver has neither room for everything nor a proof that nothing fits."""
    if len(problem.graph.ops) > _MOST_OPS:
        return True
    problem = problem.without_constraints
    if working_sets(problem).is_infeasible():
        return False
    if objective is Objective.MAKESPAN:
        return True
    request = Request(objective=objective)
    value = request.value_of(problem, keep_all(problem, request))
    if value is None:
        return True
    return value - index_problem(problem, objective).cheapest > PROOF_RATIO * abs(value)


def _small_problem() -> Problem:
    """Three tensors, of which two have room, so that one is made again or lies on the other device."""
    sizes_bytes = {"x": 64, "a": 640, "b": 640, "c": 640, "y": 64}
    roles = {"x": Role.BATCH}
    tensors = [
        Tensor(name, size, roles.get(name, Role.INTERMEDIATE)) for name, size in sizes_bytes.items()
    ]
    reads = {"a": ("x",), "b": ("a",), "c": ("b",), "y": ("a", "c")}
    ops = [Op(f"make_{name}", "kernel", read, (name,)) for name, read in reads.items()]
    devices = tuple(Device(name, "llvm", 1536) for name in ("fast", "slow"))
    links = (Link("fast", "slow", 1.0, 1.0), Link("slow", "fast", 1.0, 1.0))
    costs = {op.name: {"fast": OpCost(1.0), "slow": OpCost(2.0)} for op in ops}
    graph = OpGraph(tuple(tensors), tuple(ops), ("y",))
    return Problem(graph, Platform(devices, links), costs)
