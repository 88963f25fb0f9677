"""An op that has several kernels takes one for each of its runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_xengine.errors import InvalidProblemError, InvalidScheduleError
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem, problem_from_json, problem_to_json
from tvm_xengine.scheduling.schedule import (
    Compute,
    Schedule,
    describe,
    schedule_from_json,
    schedule_to_json,
    with_frees,
)
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.result import Limits, Objective, Scope
from tvm_xengine.solvers.solve import solve

UNIT = 64
FAST, LEAN = OpCost(2.0, 3 * UNIT, energy_uj=5.0), OpCost(5.0, energy_uj=1.0)


def unit(name: str, units: int = 1, role: Role = Role.INTERMEDIATE) -> Tensor:
    return Tensor(name, units * UNIT, role)


def problem_of(budget_units: int) -> Problem:
    """`a` is large, read at the begin and at the end, and made by an op with two kernels.

    Between both uses `m` needs memory, so that `a` is dropped; when it is made again `b` and `s` are there.
    """
    op = [
        Op("make", "make", ("x",), ("a",)),
        Op("first", "first", ("a",), ("b",)),
        Op("middle", "middle", ("b",), ("m",)),
        Op("shrink", "shrink", ("m",), ("s",)),
        Op("last", "last", ("a", "b", "s"), ("y",)),
    ]
    graph = OpGraph(
        (
            unit("x", role=Role.BATCH), unit("a", 2), unit("b", 2), unit("m", 4), unit("s"),
            unit("y"),
        ),
        tuple(op),
        ("y",),
    )  # fmt: skip
    costs = {one.name: {"d": OpCost(10.0)} for one in op}
    costs["make"] = {"d": replace(FAST, variants={"lean": LEAN})}
    device = Device("d", "llvm", budget_units * UNIT)
    return Problem(graph, Platform((device,), alignment_bytes=UNIT), costs)


PROBLEM = problem_of(8)
"""x, b, m and s fill it; the first run of `make` has room for 5 units of scratch, the second for 2."""


def variants(schedule: Schedule) -> list[str]:
    return [s.variant for s in schedule.steps if isinstance(s, Compute) and s.op == "make"]


@pytest.mark.parametrize("solver", ["auto", "astar", "tight", "miqp", "local-search"])
def test_a_repetition_takes_another_kernel_than_the_first_run(solver: str) -> None:
    limit_s = 1.0 if solver == "local-search" else 60.0  # it proves nothing, and takes all
    found = solve(PROBLEM, solver, limits=Limits(limit_s))
    assert found.schedule is not None
    assert variants(found.schedule) == ["", "lean"]
    assert found.value == pytest.approx(4 * 10.0 + 2.0 + 5.0)
    if found.scope is Scope.EVERY_SCHEDULE:
        assert found.bound <= 47.0 + 1e-6


def test_with_room_the_fastest_kernel_runs() -> None:
    found = solve(problem_of(20), limits=Limits(20.0))
    assert found.schedule is not None
    assert variants(found.schedule) == [""]


def test_energy_is_saved_where_it_is_the_objective() -> None:
    found = solve(problem_of(20), objective=Objective.ENERGY, limits=Limits(20.0))
    assert found.schedule is not None
    assert variants(found.schedule) == ["lean"]


def test_files_name_variants_and_refuse_those_that_are_unknown() -> None:
    steps = [Compute(name, "d") for name in ("make", "first", "middle", "shrink", "make", "last")]
    schedule = with_frees(PROBLEM, steps)
    assert "make on d with lean" in map(describe, schedule.steps)
    assert schedule_from_json(schedule_to_json(schedule)) == schedule
    assert problem_from_json(problem_to_json(PROBLEM)) == PROBLEM
    simulate(PROBLEM, schedule)
    wrong = [
        replace(step, variant="huge") if isinstance(step, Compute) else step
        for step in schedule.steps
    ]
    with pytest.raises(
        InvalidScheduleError, match="a variant of make among '', 'lean', got 'huge'"
    ):
        simulate(PROBLEM, Schedule(tuple(wrong)))
    with pytest.raises(InvalidProblemError, match="needs a name"):
        replace(FAST, variants={"": LEAN})
