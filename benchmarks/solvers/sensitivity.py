"""``python -m benchmarks.solvers.sensitivity``: what constants of greedy and of the local search change.

Each constant is halved and doubled, or moved likewise, with the others as they are. The local search
is limited by evaluations, so the figures do not depend on the speed or load of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, log
from types import ModuleType
from unittest.mock import patch

from benchmarks.record import record
from benchmarks.solvers.training_graphs import problem_of
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.greedy import lean_order
from tvm_xengine.solvers.greedy import solve as greedy
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search import annealer, driver
from tvm_xengine.solvers.result import Limits, Objective

CASES = (
    ("lenet", "shared", 0.3),
    ("vgg19", "one", 0.5),
    ("resnet18", "pcie", 0.5),
    ("mobilenet_v2", "pcie", 0.5),
    ("unet", "shared", 0.3),
    ("gpt2_small", "one", 0.5),
)
EVALUATIONS = 40_000
"""For one search: on these graphs 1 to 5 s."""
UNLIMITED = Limits(86_400.0)
"""A day, so that only evaluations end a search."""
SEEDS = (0, 1)


@dataclass(frozen=True)
class Constant:
    """A constant of a module, and the values that it is tried with."""

    module: ModuleType
    name: str
    others: tuple[object, ...]

    def values(self) -> Iterator[object]:
        """Its own value first."""
        yield getattr(self.module, self.name)
        yield from self.others


def _scaled(factor: float) -> tuple[float, ...]:
    return tuple(factor * heat for heat in annealer._HOT)


IN_GREEDY = (
    Constant(greedy, "_CLOSE_RATIO", (1.0, 1.02)),
    Constant(greedy, "_DEAR_RATIO", (1.0, 1.1, 1.5)),
    Constant(greedy, "_MOST_OPS", (6_000, 24_000)),
    Constant(greedy, "_ELSEWHERE_FACTOR", (100.0, 10_000.0)),
    Constant(lean_order, "_AHEAD", (6, 24)),
)
IN_SEARCH = (
    Constant(annealer, "_HOT", (_scaled(0.5), _scaled(2.0))),
    Constant(annealer, "_COOLED", (0.1, 0.001)),
    Constant(driver, "_ROUND_PER_DECISION", (10, 40)),
)


def main() -> None:
    """Try every constant and record a row for each value."""
    problems = [problem_of(*case) for case in CASES]
    for constant in IN_GREEDY:
        _try(constant, problems, (0,), lambda problem, _seed: greedy.greedy_schedule(problem))
    for constant in IN_SEARCH:
        _try(constant, problems, SEEDS, _searched)


def _searched(problem: Problem, seed: int) -> Schedule | None:
    return driver.search(problem, limits=UNLIMITED, evaluations=EVALUATIONS, seed=seed)


def _try(
    constant: Constant,
    problems: list[Problem],
    seeds: tuple[int, ...],
    find: Callable[[Problem, int], Schedule | None],
) -> None:
    for value in constant.values():
        ratios = []
        with patch.object(constant.module, constant.name, value):
            for problem in problems:
                cheapest = index_problem(problem, Objective.COST).cheapest
                found = (find(problem, seed) for seed in seeds)
                ratios += [simulate(problem, s).cost_us / cheapest for s in found if s is not None]
        mean = exp(sum(map(log, ratios)) / len(ratios))
        record(
            "sensitivity",
            {
                "constant": f"{constant.module.__name__}.{constant.name}",
                "value": str(value),
                "schedules": len(ratios),
                "cost": round(mean, 5),
            },
        )


if __name__ == "__main__":
    main()
