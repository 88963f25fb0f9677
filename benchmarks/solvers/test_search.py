"""How fast the search starts, decodes and finds its first schedule.

Run with ``python -m pytest benchmarks/solvers/test_search.py -m slow -s``; each test prints a row.
What the answers are worth is the question of ``benchmarks/solvers/test_solvers.py``.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from tests.solvers.samples.networks import residual, single, transformer, unet
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search.compiled.decisions import keep_all_decisions
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.local_search.compiled.scratch import scratch_of
from tvm_xengine.solvers.local_search.compiled.view import view_of
from tvm_xengine.solvers.local_search.driver import Exchange, search
from tvm_xengine.solvers.result import Limits, Objective

pytestmark = pytest.mark.slow


def report(*columns: object) -> None:
    """Print one row."""
    sys.stdout.write("  ".join(map(str, columns)) + "\n")


@pytest.mark.parametrize(
    ("name", "graph"),
    [("unet4", unet(4)), ("residual8", residual(8)), ("transformer24", transformer(24))],
)
def test_decodes_per_second(name, graph):
    indexed = index_problem(single(graph, 1.0), Objective.COST)
    static, work = view_of(indexed), scratch_of(indexed)
    x = keep_all_decisions(indexed, np.zeros(indexed.op_count, np.int64))
    decode(static, x, work)
    times = []
    for _ in range(50):
        started = time.process_time()
        decode(static, x, work)
        times.append(time.process_time() - started)
    per_op_us = 1e6 * float(np.median(times)) / indexed.op_count
    report(name, indexed.op_count, "ops", f"{per_op_us:.2f} us of CPU per op and decode")
    assert per_op_us < 5.0


def test_a_fresh_process_searches_within_seconds_once_compiled():
    code = (
        "from tests.solvers.samples.networks import chain, single\n"
        "from tvm_xengine.solvers.local_search.driver import search\n"
        "search(single(chain(4), 0.9), evaluations=10)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # compiles if nobody did
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    report("import, load and search", f"{time.perf_counter() - started:.2f} s")


@pytest.mark.parametrize("layers", [24, 60, 96])
@pytest.mark.parametrize("ratio", [0.5, 0.3])
def test_thousands_of_ops_have_a_schedule_soon(layers, ratio):
    problem = single(transformer(layers), ratio)
    found: list[tuple[float, float]] = []
    started = time.perf_counter()
    schedule = search(
        problem,
        limits=Limits(time_limit_s=60.0),
        exchange=Exchange(
            lambda value, _: found.append((time.perf_counter() - started, value)),
        ),
    )
    assert schedule is not None
    value = simulate(problem, schedule).cost_us
    first_s, first = found[0]
    report(
        f"transformer{layers}",
        len(problem.graph.ops),
        ratio,
        f"first {first / problem.cheapest_us:.4f} after {first_s:.1f} s",
        f"best {value / problem.cheapest_us:.4f} after {found[-1][0]:.1f} s",
    )
    assert value <= first
