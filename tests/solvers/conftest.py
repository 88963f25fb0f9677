"""Compiles what the solvers need before any test has a time limit."""

from __future__ import annotations

import pytest

from tests.solvers.samples.chains import repeated_start
from tvm_xengine.solvers.astar.search import shortest_path
from tvm_xengine.solvers.local_search.driver import search
from tvm_xengine.solvers.result import Objective


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """A machine compiles the searches once, for longer than some tests let them run."""
    problem = repeated_start(12)
    search(problem, evaluations=10)
    shortest_path(problem, Objective.COST)
