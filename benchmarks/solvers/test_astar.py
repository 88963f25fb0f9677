"""What A* over states proves that the relaxations do not prove in the same time.

Run with ``python -m pytest benchmarks/solvers/test_astar.py -m slow -s``. Every instance of up to 24 ops is
solved twice with the default solver and the same time limit: with A*, and with A* replaced by
what follows it, one relaxation that leaves the order of first runs open. A row says whether the
answer is proven optimal among all schedules. Rows on a loaded machine are comparable only with each other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from benchmarks.record import record
from benchmarks.solvers.training_graphs import PLATFORMS, problem_of
from tests.solvers.samples.networks import chain, pair, residual, single, with_storage
from tests.strategies import problems
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.portfolio.workers import shortest_path
from tvm_xengine.solvers.result import Limits, Scope, Status
from tvm_xengine.solvers.solve import solve

pytestmark = pytest.mark.slow

_LIMIT_S = 20.0
"""Twice what ``test_solvers.py`` allows graphs of this size, for machines that do other work."""
_RANDOM = 40
"""Random problems, each with more than the 6 ops up to which the default solver asks A* first."""
RATIOS = (0.9, 0.7, 0.5, 0.3, None)


def instances() -> Iterator[tuple[str, Problem]]:
    """Small training steps and random problems, by name."""
    for platform in PLATFORMS:
        for ratio in RATIOS:
            yield f"mlp {platform} {ratio}", problem_of("mlp", platform, ratio)
    for name, graph in (("chain2", chain(2)), ("chain3", chain(3)), ("residual1", residual(1))):
        if len(graph.ops) > 24:
            continue
        for ratio in (0.9, 0.7, 0.5, 0.3):
            yield f"{name} one {ratio}", single(graph, ratio)
            yield f"{name} pair {ratio}", pair(graph, ratio, slow=4.0, link_gb_s=3.0)
            yield f"{name} storage {ratio}", with_storage(graph, ratio, link_gb_s=3.0)
    for k, problem in enumerate(_random_problems()):
        yield f"random {k} ({len(problem.graph.ops)} ops)", problem


def _random_problems() -> list[Problem]:
    drawn: list[Problem] = []

    @settings(
        max_examples=20 * _RANDOM,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(problem=problems(max_ops=24, max_devices=3, max_state=4))
    def draw(problem: Problem) -> None:
        drawn.append(problem)

    draw()
    drawn = [p for p in drawn if 7 <= len(p.graph.ops) <= 24]
    return drawn[:: max(1, len(drawn) // _RANDOM)][:_RANDOM]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """A machine compiles the searches once; no instance shall wait for that."""
    solve(problem_of("mlp", "pcie", 0.7), limits=Limits(time_limit_s=120.0))


@pytest.mark.parametrize(("name", "problem"), [pytest.param(*x, id=x[0]) for x in instances()])
def test_what_is_proven_with_and_without_astar(
    name: str, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: list[float] = []
    for mode in ("astar", "relaxations"):
        if mode == "relaxations":
            monkeypatch.setattr(shortest_path, "shortest_path", lambda *_args, **_options: None)
        started = time.perf_counter()
        result = solve(problem, limits=Limits(time_limit_s=_LIMIT_S))
        is_proven = result.scope is Scope.EVERY_SCHEDULE and result.status in (
            Status.OPTIMAL,
            Status.INFEASIBLE,
        )
        record(
            "astar",
            {
                "instance": name,
                "mode": mode,
                "proven": "yes" if is_proven else "no",
                "status": result.status.value,
                "value": result.value,
                "bound": result.bound,
                "scope": result.scope.value,
                "solver": result.solver,
                "seconds": round(time.perf_counter() - started, 1),
            },
        )
        if is_proven and result.value is not None:
            values.append(result.value)
    assert values == pytest.approx(values[:1] * len(values))
