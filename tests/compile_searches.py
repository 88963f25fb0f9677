"""Compiles what numba compiles, once: else each test worker does it, and a test that solves waits.

Run as ``python -m tests.compile_searches`` before the tests; what is compiled is kept beside the sources.
"""

from __future__ import annotations

from tests.solvers.samples.networks import chain, pair
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.solvers.astar.search import shortest_path
from tvm_xengine.solvers.local_search.driver import search
from tvm_xengine.solvers.result import Limits, Objective

_LIMIT_S = 3600.0
"""Compiling counts, and takes minutes on a busy machine; a search that is over compiles no more."""


def main() -> None:
    """Use each compiled function on a small problem of two devices."""
    problem = pair(chain(3), 0.8, slow=2.0, link_gb_s=1.0)
    schedule = search(problem, evaluations=1, limits=Limits(_LIMIT_S))
    assert schedule is not None
    plan_arenas(problem, schedule)
    shortest_path(problem, Objective.COST)


if __name__ == "__main__":
    main()
