"""Compiles what numba compiles, once: else each test worker does it, and a test that solves waits.

Run as ``python -m tests.compile_searches`` before the tests; what is compiled is kept beside the sources.
"""

from __future__ import annotations

from tests.solvers.samples.networks import chain, single
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.solvers.first_use import compile_searches
from tvm_xengine.solvers.solve import solve


def main() -> None:
    """Use each compiled function on a small problem."""
    compile_searches()
    problem = single(chain(3), 1.0)
    schedule = solve(problem, "greedy").schedule
    assert schedule is not None
    plan_arenas(problem, schedule)


if __name__ == "__main__":
    main()
