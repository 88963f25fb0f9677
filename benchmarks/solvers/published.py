"""``python -m benchmarks.solvers.published``: published programs and the portfolio on the same problems."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.record import record
from benchmarks.solvers.training_graphs import problem_of
from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.result import Limits
from tvm_xengine.solvers.solve import solve

LIMIT_S = 20.0
CASES = (
    ("mlp", "one", 0.9),
    ("mlp", "storage", 0.5),
    ("mlp", "pcie", 0.7),
    ("lenet", "pcie", 0.7),
    ("vgg19", "one", 0.7),
)
"""Network, platform of `PLATFORMS` and budget ratio."""
SOLVERS: Mapping[str, str | None] = {
    "auto": None,
    "checkmate": None,
    "checkmate-rounding": None,
    "xengine": "highs",
    "poet": None,
    "retention": None,
}
"""With a backend where it is not the default one."""


def main() -> None:
    """Record a row for each problem and each program that is for its devices."""
    for network, platform, ratio in CASES:
        problem = problem_of(network, platform, ratio)
        for solver in SOLVERS:
            cells = _cells(problem, solver)
            if cells is not None:
                named = {"network": network, "devices": platform, "ratio": ratio, "solver": solver}
                record("published", {**named, **cells})


def _cells(problem: Problem, solver: str) -> Mapping[str, str | float | None] | None:
    """What a solver answers; None where it is for other devices, or not installed."""
    try:
        found = solve(problem, solver, SOLVERS[solver], limits=Limits(LIMIT_S))
    except (SolverUnavailableError, ValueError):
        return None

    def relative(value: float | None) -> float | None:
        return None if value is None else round(value / problem.cheapest_us, 4)

    return {
        "status": found.status.value,
        "model": relative(found.model_value),
        "value": relative(found.value),
        "bound": relative(found.bound),
        "seconds": round(found.solve_s, 1),
    }


if __name__ == "__main__":
    main()
