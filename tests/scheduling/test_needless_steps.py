"""What is left out of a schedule is needed by nothing, and what is left is needed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import Scheduled, cases, scheduled
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.needless_steps import without_dead_steps, without_idle_steps
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import (
    Compute,
    Free,
    Step,
    Transfer,
    accesses,
    needed_at_end,
    with_frees,
)
from tvm_xengine.scheduling.simulate import simulate


@settings(max_examples=cases(150))
@given(scheduled(), st.data())
def test_without_dead_steps_a_schedule_delivers_the_same_in_no_more_time_and_memory(
    given_steps: Scheduled, data: st.DataObject
) -> None:
    problem, steps = given_steps
    clean = without_dead_steps(problem, with_frees(problem, steps))
    assert without_dead_steps(problem, clean) == clean
    # Copies and computations of what is there are put in between, and nobody needs them.
    position = data.draw(st.integers(0, len(steps)))
    there = {*problem.home.items()}
    for step in steps[:position]:
        _, written, taken = accesses(problem, step)
        there = (there | {*written}) - {*taken}
    copies: list[Step] = [
        Transfer(name, src, dst)
        for name, at in sorted(there)
        for src, dst in problem.platform.link_between
        if at == src and (name, dst) not in there
    ]
    if not copies:
        return
    more = with_frees(
        problem, [*steps[:position], data.draw(st.sampled_from(copies)), *steps[position:]]
    )
    try:
        before = simulate(problem, more, enforce_budgets=False)
    except InvalidScheduleError:  # a copy of what is copied or made there later
        return
    cleaned = without_dead_steps(problem, more)
    after = simulate(problem, cleaned, enforce_budgets=False)
    assert after.makespan_us <= before.makespan_us + 1e-9
    assert after.cost_us <= before.cost_us + 1e-9
    assert all(after.peak_bytes[d] <= peak for d, peak in before.peak_bytes.items())
    made = [s for s in cleaned.steps if not isinstance(s, Free)]
    for k in range(len(made)):
        _, written, _ = accesses(problem, made[k])
        rest = [accesses(problem, step) for step in made[k + 1 :]]
        used = {place for reads, _, taken in rest for place in (*reads, *taken)}
        assert {*written} & (used | needed_at_end(problem, made))


@settings(max_examples=cases(150))
@given(scheduled())
def test_without_idle_steps_a_schedule_is_valid_and_takes_no_longer(given_steps: Scheduled) -> None:
    problem, steps = given_steps
    schedule = with_frees(problem, steps)
    try:
        before = simulate(problem, schedule)
    except InvalidScheduleError:
        return
    shorter = without_idle_steps(problem, schedule)
    after = simulate(problem, shorter)
    assert after.makespan_us <= before.makespan_us + 1e-9
    assert after.cost_us <= before.cost_us + 1e-9
    assert len(shorter.steps) <= len(schedule.steps)


def _paged() -> Scheduled:
    """d0 has room for a, b and c at once; a goes to d1 while b is made, and comes back."""
    tensors = (Tensor("x", 0, Role.BATCH), *(Tensor(name, 100) for name in "abc"))
    ops = (
        Op("a", "k", ("x",), ("a",)),
        Op("b", "k", ("x",), ("b",)),
        Op("c", "k", ("a", "b"), ("c",)),
    )
    devices = (Device("d0", "llvm", 300), Device("d1", "llvm"))
    links = (Link("d0", "d1", 0.0, 0.1), Link("d1", "d0", 0.0, 0.1))  # a copy takes 1
    platform = Platform(devices, links, "d0", 4)
    costs = {op.name: {"d0": OpCost(10.0)} for op in ops}
    steps: list[Step] = [
        Compute("a", "d0"),
        Transfer("a", "d0", "d1"),
        Compute("b", "d0"),
        Transfer("a", "d1", "d0"),
        Compute("c", "d0"),
    ]
    return Problem(OpGraph(tensors, ops, ("c",)), platform, costs), steps


def test_a_tensor_that_can_stay_is_not_moved_away_and_back() -> None:
    problem, steps = _paged()
    found = without_idle_steps(problem, with_frees(problem, steps))
    assert [step for step in found.steps if not isinstance(step, Free)] == [
        steps[k] for k in (0, 2, 4)
    ]


def test_a_tensor_that_cannot_stay_is_moved_away_and_back() -> None:
    problem, steps = _paged()
    workspace = {"d0": OpCost(10.0, workspace_bytes=200)}
    problem = replace(problem, costs={**problem.costs, "b": workspace})
    schedule = with_frees(problem, steps)
    assert without_idle_steps(problem, schedule) == schedule


def test_a_tensor_that_is_there_is_not_computed_again() -> None:
    problem, (a, _, b, _, c) = _paged()
    x, *others = problem.graph.ops
    graph = replace(problem.graph, ops=(x, replace(others[0], inputs=("a",)), others[1]))
    problem = replace(problem, graph=graph)
    found = without_idle_steps(problem, with_frees(problem, [a, b, a, c]))
    assert [step for step in found.steps if not isinstance(step, Free)] == [a, b, c]


def test_trials_end_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, steps = _paged()
    schedule = with_frees(problem, steps)
    assert without_idle_steps(problem, schedule, lambda: False) != schedule
    monkeypatch.setattr("tvm_xengine.scheduling.needless_steps._LEAST_STEPS_REPLAYED", 0)
    assert without_idle_steps(problem, schedule, lambda: False) == schedule
