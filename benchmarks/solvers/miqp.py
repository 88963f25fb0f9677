"""``python -m benchmarks.solvers.miqp [NETWORK...] [BACKEND...]``: the quadratic program, the portfolio."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import tvm_xengine as xe
from benchmarks.record import record
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.exact.tight import formulate_tight
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.miqp.solve import copies_for
from tvm_xengine.solvers.result import Limits, Objective, SolveResult
from tvm_xengine.solvers.solve import solve

NETWORKS = ("mlp", "lenet", "resnet8", "ds_cnn")
RATIOS = (0.7, 0.5)
BACKENDS = ("highs", "scip", "gurobi")
LIMIT_S = 60.0


def main(names: Sequence[str]) -> None:
    """Record a row for each network, budget and backend; all of them where none is named."""
    networks = [name for name in NETWORKS if name in names] or NETWORKS
    backends = [name for name in BACKENDS if name in names] or BACKENDS
    for network in networks:
        lowered = xe.lower(xe.training_step(network), xe.default_platform())
        for ratio in RATIOS:
            problem = xe.make_problem(lowered, "predicted").with_budget_ratio(ratio).problem
            auto = solve(problem, "auto", limits=Limits(LIMIT_S))
            for backend in backends:
                found = solve(problem, "miqp", backend, limits=Limits(LIMIT_S))
                record("miqp", _row(network, ratio, backend, problem, auto, found))


def _row(
    network: str,
    ratio: float,
    backend: str,
    problem: Problem,
    auto: SolveResult,
    found: SolveResult,
) -> Mapping[str, str | int | float | None]:
    indexed = index_problem(problem, Objective.COST)
    program = formulate_tight(indexed, copies_for(backend)).program
    return {
        "network": network,
        "ratio": ratio,
        "backend": backend,
        "status": found.status.value,
        "value": _relative(found.value, indexed.cheapest),
        "bound": _relative(found.bound, indexed.cheapest),
        "scope": found.scope.value,
        "auto": _relative(auto.value, indexed.cheapest),
        "seconds": round(found.solve_s, 1),
        "columns": program.column_count,
        "rows": program.row_count,
    }


def _relative(value: float | None, cheapest: float) -> float | None:
    return None if value is None else round(value / cheapest, 4)


if __name__ == "__main__":
    main(sys.argv[1:])
