"""How good the solvers are, and how fast: one run, the same graphs, the same referee.

Run with ``python -m pytest benchmarks/test_solvers.py -m slow -s``; each test prints a row
(graph, ops, devices, budget ratio, solver, status, value, bound, gap, seconds). Times on a
loaded machine say little.
"""

from __future__ import annotations

import sys
import time

import pytest

from benchmarks.training_graphs import PCIE, SHARED, on_platform, residual_network, transformer
from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.problem import Problem
from tvm_xengine.simulate import simulate
from tvm_xengine.solvers.result import Limits, Objective, SolveResult, Status
from tvm_xengine.solvers.solve import solve

pytestmark = pytest.mark.slow

BASELINES = ("keep-all", "recompute-all", "sqrt-n", "revolve", "rotor", "greedy")
FORMULATIONS = ("checkmate", "checkmate-rounding", "xengine-highs", "tight")


def solved(name: str, problem: Problem, solver: str, limits: Limits) -> SolveResult:
    """The answer of `solver`, printed as a row."""
    started = time.perf_counter()
    result = solve(problem, solver, limits=limits)
    row = (
        name,
        len(problem.graph.ops),
        solver,
        result.status.value,
        "-" if result.value is None else f"{result.value:.1f}",
        f"{result.bound:.1f}",
        "-" if result.gap is None else f"{result.gap:.4f}",
        f"{time.perf_counter() - started:.1f} s",
        result.scope.value,
    )
    sys.stdout.write("  ".join(map(str, row)) + "\n")
    return result


@pytest.mark.parametrize("ratio", [0.9, 0.7, 0.5])
@pytest.mark.parametrize("computing", [1, 2])
def test_up_to_60_ops_are_proven_optimal_within_10_s(computing: int, ratio: float) -> None:
    problem = on_platform(residual_network(7), ratio, computing=computing)
    result = solved(f"residual7/{computing}/{ratio}", problem, "auto", Limits(time_limit_s=10.0))
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize(("ratio", "gap"), [(0.9, 0.01), (0.7, 0.01), (0.5, 0.01), (0.3, 0.03)])
@pytest.mark.parametrize("computing", [1, 2])
@pytest.mark.parametrize("link", [PCIE, SHARED], ids=["pcie", "shared"])
@pytest.mark.parametrize("graph", ["residual50", "transformer12"])
def test_hundreds_of_ops_are_within_the_gap_in_60_s(
    graph: str, link: tuple[float, float], computing: int, ratio: float, gap: float
) -> None:
    draft = residual_network(50) if graph == "residual50" else transformer(12)
    problem = on_platform(draft, ratio, computing=computing, link=link)
    limits = Limits(time_limit_s=60.0, gap_ratio=gap / 2)
    result = solved(f"{graph}/{computing}/{link[1]}/{ratio}", problem, "auto", limits)
    if result.schedule is None:
        assert result.status is Status.INFEASIBLE
    else:
        assert result.gap is not None
        assert result.gap <= gap


@pytest.mark.parametrize("has_storage", [False, True])
def test_thousands_of_ops_are_within_one_percent_in_5_minutes(has_storage: bool) -> None:
    problem = on_platform(transformer(110), 0.5, has_storage=has_storage)
    first = solved("transformer110/0.5", problem, "greedy", Limits(time_limit_s=10.0))
    assert first.solve_s < 10.0
    limits = Limits(time_limit_s=300.0, gap_ratio=0.005)
    result = solved("transformer110/0.5", problem, "auto", limits)
    assert result.gap is not None
    assert result.gap <= 0.01


@pytest.mark.parametrize("ratio", [0.9, 0.7, 0.5])
def test_auto_is_never_worse_than_any_other_in_the_same_time(ratio: float) -> None:
    problem = on_platform(residual_network(7), ratio, computing=1)
    limits = Limits(time_limit_s=20.0)
    best = solved(f"residual7/{ratio}", problem, "auto", limits)
    for solver in (*BASELINES, *FORMULATIONS):
        try:
            other = solved(f"residual7/{ratio}", problem, solver, limits)
        except SolverUnavailableError as error:
            sys.stdout.write(f"{solver}: {error}\n")
            continue
        if other.value is not None:
            assert best.value is not None
            assert best.value <= other.value * (1 + 1e-6)


@pytest.mark.parametrize("peer", ["checkmate", "xengine-highs"])
def test_equal_quality_is_reached_a_hundred_times_faster_than_by_a_peer(peer: str) -> None:
    problem = on_platform(residual_network(8), 0.7)
    limit_s = 120.0
    theirs = solved("residual8/0.7", problem, peer, Limits(time_limit_s=limit_s))
    ours = solve(problem, "greedy")
    assert ours.value is not None
    if theirs.value is None or ours.value <= theirs.value:
        assert ours.solve_s * 100 <= theirs.solve_s
    else:
        ours = solve(problem, limits=Limits(time_limit_s=theirs.solve_s / 100))
        assert ours.value is not None
        assert ours.value <= theirs.value * (1 + 1e-6)


@pytest.mark.parametrize("ratio", [0.7, 0.5])
def test_asked_for_makespan_it_beats_the_cheapest_schedule_over_shared_memory(
    ratio: float,
) -> None:
    problem = on_platform(transformer(4), ratio, computing=2, link=SHARED)
    cheapest = solved(f"transformer4/{ratio}", problem, "auto", Limits(time_limit_s=30.0))
    assert cheapest.schedule is not None
    limits = Limits(time_limit_s=30.0)
    fastest = solve(problem, objective=Objective.MAKESPAN, limits=limits)
    assert fastest.value is not None
    assert fastest.value < simulate(problem, cheapest.schedule).makespan_us


def test_an_ample_budget_is_answered_in_milliseconds() -> None:
    problem = on_platform(residual_network(50), 1.0)
    assert solved("residual50/1.0", problem, "auto", Limits()).solve_s < 0.5
