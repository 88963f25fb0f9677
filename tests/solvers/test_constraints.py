"""Every solver respects constraints, or says that it finds nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.oracles.exhaustive import solve_exhaustively
from tests.solvers.samples.chains import repeated_start
from tests.solvers.samples.copies import copies_in_turn
from tests.strategies import cases, problems
from tvm_xengine.errors import SolverUnavailableError, UnsupportedProblemError
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.constraints import Constraints
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.solvers.result import Limits, Status
from tvm_xengine.solvers.solve import SOLVERS, solve


@st.composite
def constrained_problems(draw: st.DrawFn) -> Problem:
    """Problems with constraints on a part of their ops."""
    problem = draw(problems(max_ops=4))
    names = [op.name for op in problem.graph.ops]
    pinned = {
        op: draw(st.sampled_from(sorted(problem.costs[op])))
        for op in draw(st.lists(st.sampled_from(names), unique=True))
    }
    kept = frozenset(draw(st.lists(st.sampled_from(names), unique=True)))
    return replace(problem, constraints=Constraints(pinned, kept))


def two_devices() -> Problem:
    """A chain of four ops that all run four times as fast on the second device."""
    names = ("a", "b", "c", "d")
    graph = OpGraph(
        tensors=(Tensor("x", 4, Role.BATCH), *(Tensor(name, 4) for name in names)),
        ops=tuple(
            Op(name, "k", (before,), (name,)) for before, name in zip("xabc", names, strict=True)
        ),
        outputs=("d",),
    )
    devices = (Device("slow", "llvm", UNLIMITED_BYTES), Device("fast", "llvm", UNLIMITED_BYTES))
    links = (Link("slow", "fast", 0.25, 1.0), Link("fast", "slow", 0.25, 1.0))
    platform = Platform(devices, links, home="slow", alignment_bytes=1)
    return Problem(graph, platform, {n: {"slow": OpCost(4.0), "fast": OpCost(1.0)} for n in names})


def _limits(solver: str) -> Limits:
    """The local search proves nothing, and takes all of its time."""
    return Limits(1.0 if solver == "local-search" else 5.0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_pinned_op_runs_where_it_must(solver: str) -> None:
    problem = replace(two_devices(), constraints=Constraints({"b": "slow", "c": "fast"}))
    try:
        found = solve(problem, solver, limits=_limits(solver))
    except (UnsupportedProblemError, SolverUnavailableError):
        return
    if found.schedule is None:
        assert SOLVERS[solver].place.startswith("published")
        return
    where = {(step.op, step.device) for step in found.schedule.steps if isinstance(step, Compute)}
    assert {("b", "slow"), ("c", "fast")} <= where
    assert not {("b", "fast"), ("c", "slow")} & where


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_kept_op_runs_once(solver: str) -> None:
    ample, tight = (
        replace(repeated_start(budget), constraints=Constraints(kept=frozenset({"a"})))
        for budget in (16, 12)
    )
    try:
        assert solve(tight, solver, limits=_limits(solver)).schedule is None
        found = solve(ample, solver, limits=_limits(solver))
    except (UnsupportedProblemError, SolverUnavailableError):
        return
    if found.schedule is None:
        assert SOLVERS[solver].place.startswith("published")
    else:
        assert found.schedule.computed.count("a") == 1


@settings(max_examples=cases(40), suppress_health_check=list(HealthCheck))
@given(problem=constrained_problems())
def test_the_optimum_under_constraints_is_that_of_all_schedules_in_the_order(
    problem: Problem,
) -> None:
    exact = solve_exhaustively(problem, in_given_order=True)
    assume(exact.is_proven)
    found = solve(problem, "tight", limits=Limits(20.0))
    if exact.value is None:
        assert found.schedule is None
        return
    is_in_scope = not copies_in_turn(exact.schedule)
    if found.schedule is None and not is_in_scope:
        return
    assert found.schedule is not None
    assert simulate(problem, found.schedule).cost_us == pytest.approx(found.value)
    assert found.value is not None
    assert found.value >= exact.value * (1 - 1e-6)
    if found.status is Status.OPTIMAL and is_in_scope:
        assert found.value == pytest.approx(exact.value)


def test_a_plan_respects_constraints() -> None:
    problem = replace(two_devices(), constraints=Constraints({"b": "slow"}))
    plan = plan_schedule(problem, PlanOptions(limits=Limits(3.0)))
    assert Compute("b", "slow") in plan.schedule.steps
    assert plan.problem.constraints == problem.constraints
