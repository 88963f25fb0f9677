"""Decisions read off a schedule, and what brings them closer to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.solvers.samples.networks import pair, residual, unet
from tests.strategies import cases, problems
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.local_search.compiled.scratch import schedule_left_in, scratch_of
from tvm_xengine.solvers.local_search.compiled.view import view_of
from tvm_xengine.solvers.local_search.encode import decisions_of
from tvm_xengine.solvers.local_search.repair import repaired_decisions_of
from tvm_xengine.solvers.result import Objective


def needed_until_the_middle() -> tuple[Problem, list[str]]:
    """A large tensor makes a small one once more, has to go, and is made once more itself."""
    graph = OpGraph(
        tensors=(
            Tensor("batch", 1, Role.BATCH),
            Tensor("large", 8),
            Tensor("small", 4),
            *(Tensor(name, 1) for name in ("busy", "used", "busier", "out")),
        ),
        ops=(
            Op("make", "k", ("batch",), ("large",)),
            Op("shrink", "k", ("large",), ("small",)),
            Op("work", "k", ("batch",), ("busy",)),
            Op("use", "k", ("small",), ("used",)),
            Op("work_more", "k", ("used",), ("busier",)),
            Op("end", "k", ("large", "busy", "busier"), ("out",)),
        ),
        outputs=("out",),
    )
    workspace = {"work": 5, "work_more": 11}
    costs = {op.name: {"d0": OpCost(1.0, workspace.get(op.name, 0))} for op in graph.ops}
    platform = Platform((Device("d0", "llvm", 15),), alignment_bytes=1)
    order = ["make", "shrink", "work", "shrink", "use", "work_more", "make", "end"]
    return Problem(graph, platform, costs, home={"batch": "d0"}), order


def test_what_is_held_until_the_middle_of_a_gap_and_dropped_there_is_kept_so() -> None:
    problem, order = needed_until_the_middle()
    schedule = with_frees(problem, [Compute(op, "d0") for op in order])
    wanted = simulate(problem, schedule).cost_us
    indexed = index_problem(problem, Objective.COST)
    static, work = view_of(indexed), scratch_of(indexed)
    assert decode(static, decisions_of(indexed, schedule), work) > (wanted, 0.0)
    x = repaired_decisions_of(indexed, schedule, wanted, static, work)
    assert decode(static, x, work) == (wanted, 0.0)
    assert [
        step.op for step in schedule_left_in(indexed, work).steps if isinstance(step, Compute)
    ] == order


@pytest.mark.parametrize("make", [lambda: residual(6), lambda: unet(4)])
def test_greedy_schedules_come_closer_to_the_budgets(make):
    for ratio in (0.6, 0.4, 0.3):
        problem = pair(make(), ratio, slow=4.0, link_gb_s=3.0)
        _check_not_worse(problem)


@settings(max_examples=cases(100))
@given(problem=problems(max_devices=3))
def test_mended_decisions_are_never_further_from_the_schedule(problem: Problem) -> None:
    _check_not_worse(problem)


def _check_not_worse(problem: Problem) -> None:
    schedule = greedy_schedule(problem)
    if schedule is None:
        return
    wanted = simulate(problem, schedule).cost_us
    indexed = index_problem(problem, Objective.COST)
    static, work = view_of(indexed), scratch_of(indexed)
    value, excess = decode(static, decisions_of(indexed, schedule), work)
    x = repaired_decisions_of(indexed, schedule, wanted, static, work)
    new_value, new_excess = decode(static, x, work)
    assert (new_excess, new_value) <= (excess, value)
    assert sorted(x.order.tolist()) == list(range(indexed.op_count))
