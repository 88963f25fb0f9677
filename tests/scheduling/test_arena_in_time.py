"""Layouts for streams that run side by side: what each of them waits for."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.layouts import check_layout
from tests.strategies import Scheduled, cases, scheduled
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.planning.streams import in_time
from tvm_xengine.planning.streams.in_time import in_streams
from tvm_xengine.scheduling.arena.fewer_waits import arenas_with_fewer_waits
from tvm_xengine.scheduling.arena.plan import ArenaPlan, plan_arenas
from tvm_xengine.scheduling.arena.timeline import Timeline
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, Transfer, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.solvers.result import Limits, Objective


def _two_copies(budget_bytes: int) -> tuple[Problem, Schedule]:
    """d0 makes a, then b, which are copied to d1, 10 us each; b may take the bytes of a."""
    tensors = (Tensor("x", 0, Role.BATCH), Tensor("a", 100), Tensor("b", 100), Tensor("end", 0))
    ops = (
        Op("a", "k", ("x",), ("a",)),
        Op("b", "k", ("x",), ("b",)),
        Op("end", "k", ("a", "b"), ("end",)),
    )
    platform = Platform(
        (Device("d0", "llvm", budget_bytes), Device("d1", "llvm")),
        (Link("d0", "d1", 0.0, 0.01),),
        alignment_bytes=4,
    )
    costs = {op.name: {"d0": OpCost(1.0), "d1": OpCost(1.0)} for op in ops}
    costs["end"] = {"d1": OpCost(1.0)}
    problem = Problem(OpGraph(tensors, ops, ("end",)), platform, costs)
    steps = [
        Compute("a", "d0"),
        Transfer("a", "d0", "d1"),
        Compute("b", "d0"),
        Transfer("b", "d0", "d1"),
        Compute("end", "d1"),
    ]
    return problem, with_frees(problem, steps)


def test_a_step_waits_for_the_bytes_that_it_takes_over() -> None:
    problem, schedule = _two_copies(200)
    small = plan_arenas(problem, schedule)
    assert small.arena_bytes["d0"] == 100
    # a until 1, its copy until 11; b until 2 (or 12), its copy until 21 (22), end 22 (23).
    assert simulate(problem, schedule).makespan_us == pytest.approx(22.0)
    assert simulate(problem, schedule, arenas=small).makespan_us == pytest.approx(23.0)
    timeline = Timeline(simulate(problem, schedule).intervals_us)
    large = plan_arenas(problem, schedule, timeline=timeline)
    assert large.arena_bytes["d0"] == 200
    assert simulate(problem, schedule, arenas=large).makespan_us == pytest.approx(22.0)


def test_streams_run_less_far_ahead_where_a_layout_in_time_has_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four tensors are made in 1 us each and copied in 10 us; at the best two wait for their copies."""
    names = "abcd"
    tensors = (Tensor("x", 0, Role.BATCH), *(Tensor(name, 100) for name in names), Tensor("end", 0))
    ops = (
        *(Op(name, "k", ("x",), (name,)) for name in names),
        Op("end", "k", tuple(names), ("end",)),
    )
    platform = Platform(
        (Device("d0", "llvm", 300), Device("d1", "llvm")),
        (Link("d0", "d1", 0.0, 0.01),),
        alignment_bytes=4,
    )
    costs = {name: {"d0": OpCost(1.0)} for name in names} | {"end": {"d1": OpCost(1.0)}}
    problem = Problem(OpGraph(tensors, ops, ("end",)), platform, costs)
    copied = [step for name in names for step in (Compute(name, "d0"), Transfer(name, "d0", "d1"))]
    schedule = with_frees(problem, [*copied, Compute("end", "d1")])
    plan = replace(
        in_turn := Plan.of_schedule(problem, schedule, "x"),
        result=replace(in_turn.result, objective=Objective.MAKESPAN),
    )
    far_ahead = plan.simulation.intervals_us

    def with_gaps(*given: Any, timeline: Timeline, **options: Any) -> ArenaPlan:
        arenas = plan_arenas(*given, timeline=timeline, **options)
        more = 300 * (timeline.intervals_us == far_ahead)
        return replace(arenas, arena_bytes={"d0": 100 + more, "d1": arenas.arena_bytes["d1"]})

    monkeypatch.setattr(in_time, "plan_arenas", with_gaps)
    by_steps_us = plan.laid_out(plan.arenas).step_us()
    assert by_steps_us == pytest.approx(4 * 11.0 + 1.0)
    assert in_streams(plan).step_us() == pytest.approx(1.0 + 4 * 10.0 + 1.0)


@pytest.mark.parametrize(("budget_bytes", "makespan_us"), [(200, 22.0), (100, 23.0)])
def test_a_plan_takes_as_much_memory_as_saves_time(budget_bytes: int, makespan_us: float) -> None:
    problem, schedule = _two_copies(budget_bytes)
    on_d1 = {op: dict(there) for op, there in problem.costs.items()}
    for op in ("a", "b"):
        del on_d1[op]["d1"]
    problem = replace(problem, costs=on_d1)
    options = PlanOptions("local-search", Objective.MAKESPAN, Limits(0.2))
    plan = plan_schedule(problem, options, start=schedule)
    assert plan.simulation.makespan_us == plan.result.value == pytest.approx(makespan_us)
    assert plan.arenas.arena_bytes["d0"] == budget_bytes


@pytest.mark.parametrize(("start_us", "devices"), [(5.0, {"a", "b"}), (15.0, {"a"})])
def test_one_device_runs_the_step_where_two_save_less_than_their_start(
    start_us: float, devices: set[str]
) -> None:
    """Two ops of 10 us each beside each other take 10 us and the start, in turn 20 us."""
    tensors = (Tensor("x", 4, Role.BATCH), Tensor("p", 4), Tensor("q", 4))
    ops = tuple(Op(name, "k", ("x",), (name,)) for name in "pq")
    links = (Link("a", "b", 0.0, 100.0), Link("b", "a", 0.0, 100.0))
    platform = Platform(
        (Device("a", "llvm"), Device("b", "llvm")), links, alignment_bytes=4, start_us=start_us
    )
    costs = {op.name: {"a": OpCost(10.0), "b": OpCost(10.0)} for op in ops}
    problem = Problem(OpGraph(tensors, ops, ("p", "q")), platform, costs)
    plan = plan_schedule(problem, PlanOptions("auto", Objective.MAKESPAN, Limits(0.5)))
    assert {s.device for s in plan.schedule.steps if isinstance(s, Compute)} == devices
    assert plan.step_us() == pytest.approx(20.0 if len(devices) == 1 else 10.0 + start_us, abs=0.1)


@settings(max_examples=cases(150))
@given(scheduled())
def test_nobody_waits_for_bytes_in_a_layout_in_time(given_steps: Scheduled) -> None:
    problem, steps = given_steps
    schedule = with_frees(problem, steps)
    problem = problem.with_budgets(dict.fromkeys(problem.platform.index, UNLIMITED_BYTES))
    free = simulate(problem, schedule)
    arenas = plan_arenas(problem, schedule, effort=1000, timeline=Timeline(free.intervals_us))
    assert simulate(problem, schedule, arenas=arenas) == free
    by_steps = plan_arenas(problem, schedule, effort=1000)
    assert simulate(problem, schedule, arenas=by_steps).makespan_us >= free.makespan_us


def test_a_search_finds_addresses_for_which_no_stream_waits() -> None:
    problem, schedule = _two_copies(200)
    promised, waiting = simulate(problem, schedule), plan_arenas(problem, schedule)
    found = arenas_with_fewer_waits(
        problem, schedule, waiting, Timeline(promised.intervals_us), effort=100
    )
    assert not found.excess_bytes(problem.platform)
    assert simulate(problem, schedule, arenas=found).makespan_us == pytest.approx(22.0)


def test_a_plan_beyond_the_budgets_gets_a_layout_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, schedule = _two_copies(200)
    arenas = plan_arenas(problem, schedule)
    beyond = replace(arenas, arena_bytes={"d0": 300, "d1": arenas.arena_bytes["d1"]})
    monkeypatch.setattr(in_time, "plan_arenas", lambda *_given, **_options: beyond)
    plan = Plan.of_schedule(problem, schedule, "x")
    overlapped = replace(plan.result, objective=Objective.MAKESPAN)
    found = in_streams(replace(plan, arenas=beyond, result=overlapped))
    assert found.arenas.arena_bytes["d0"] == 200
    assert found.step_us() == pytest.approx(22.0)


@settings(max_examples=cases(100))
@given(scheduled(), st.data())
def test_layouts_with_fewer_waits_hold_what_lives_together_apart(
    given_steps: Scheduled, data: st.DataObject
) -> None:
    problem, steps = given_steps
    schedule = with_frees(problem, steps)
    reserve_home = data.draw(st.booleans())
    problem = problem.with_budgets(dict.fromkeys(problem.platform.index, UNLIMITED_BYTES))
    by_steps = plan_arenas(problem, schedule, effort=1000, reserve_home=reserve_home)
    # So that the layout by steps just fits, and waits.
    problem = problem.with_budgets({name: max(1, n) for name, n in by_steps.arena_bytes.items()})
    free = simulate(problem, schedule, enforce_budgets=False)
    found = arenas_with_fewer_waits(
        problem,
        schedule,
        by_steps,
        Timeline(free.intervals_us),
        effort=2000,
        reserve_home=reserve_home,
    )
    check_layout(problem, schedule, found)
    assert not found.excess_bytes(problem.platform)
    before, after = (simulate(problem, schedule, arenas=each) for each in (by_steps, found))
    assert after.makespan_us <= before.makespan_us
