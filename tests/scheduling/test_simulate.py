from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.strategies import Scheduled, cases, scheduled
from tvm_xengine.errors import BudgetExceededError, InvalidScheduleError
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import (
    Compute,
    Free,
    Schedule,
    Step,
    Transfer,
    schedule_from_json,
    schedule_to_json,
    with_frees,
)
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES


def chain(budget_bytes: int = UNLIMITED_BYTES, devices: int = 1) -> Problem:
    """x -> a -> b, c reads a and b; then w is updated from c in place. Sizes 100, times 10."""
    tensors = (
        Tensor("x", 100, Role.BATCH),
        Tensor("w", 100, Role.PARAMETER),
        *(Tensor(name, 100) for name in ("a", "b", "c", "new_w")),
    )
    ops = (
        Op("a", "k", ("x", "w"), ("a",)),
        Op("b", "k", ("a",), ("b",)),
        Op("c", "k", ("a", "b"), ("c",)),
        Op("up", "k", ("w", "c"), ("new_w",), (("new_w", "w"),), recomputable=False),
    )
    names = ["d0", "d1", "d2"][:devices]
    links = tuple(Link(s, d, 5.0, 0.1) for s in names for d in names if s != d)
    platform = Platform(
        tuple(Device(name, "llvm", budget_bytes) for name in names), links, alignment_bytes=4
    )
    costs = {op.name: {name: OpCost(10.0, 7) for name in names} for op in ops}
    return Problem(OpGraph(tensors, ops, ("c",)), platform, costs)


def on(device: str, *ops: str) -> list[Step]:
    return [Compute(op, device) for op in ops]


def test_the_peak_counts_state_inputs_outputs_and_workspace() -> None:
    problem = chain()
    result = simulate(problem, with_frees(problem, on("d0", "a", "b", "c", "up")))
    # While c runs: w, a, b, c and 7 bytes of workspace; x died after a.
    assert result.peak_bytes == {"d0": 407}
    assert result.cost_us == 40.0
    assert result.makespan_us == 40.0


def test_recomputing_costs_time_and_is_counted() -> None:
    problem = chain()
    schedule = with_frees(problem, on("d0", "a", "b", "a", "c", "up"))
    assert simulate(problem, schedule).cost_us == 50.0
    assert schedule.recomputed_ops == 1


def test_a_budget_binds_at_its_last_byte() -> None:
    steps = on("d0", "a", "b", "c", "up")
    simulate(chain(407), with_frees(chain(407), steps))
    with pytest.raises(BudgetExceededError, match="needs 407 bytes on d0, whose budget is 406"):
        simulate(chain(406), with_frees(chain(406), steps))


def test_state_that_the_first_step_frees_counts_until_then() -> None:
    """Nothing reads the batch `x`, so it is freed at once; it was there all the same."""
    tensors = (Tensor("x", 400, Role.BATCH), Tensor("w", 100, Role.PARAMETER), Tensor("a", 100))
    graph = OpGraph(tensors, (Op("a", "k", ("w",), ("a",)),), ("a",))
    platform = Platform((Device("d0", "llvm", 400),), alignment_bytes=4)
    problem = Problem(graph, platform, {"a": {"d0": OpCost(1.0)}})
    schedule = with_frees(problem, on("d0", "a"))
    with pytest.raises(BudgetExceededError, match="needs 500 bytes"):
        simulate(problem, schedule)


def test_a_recomputation_after_the_in_place_update_is_refused() -> None:
    problem = chain()
    steps: list[Step] = [*on("d0", "a", "b", "c", "up"), *on("d0", "a")]
    with pytest.raises(InvalidScheduleError, match="w is read after new_w has overwritten it"):
        simulate(problem, with_frees(problem, steps))


def test_an_update_must_not_run_twice() -> None:
    problem = chain()
    with pytest.raises(InvalidScheduleError, match="must not be repeated"):
        simulate(problem, with_frees(problem, on("d0", "a", "b", "c", "up", "up")))


def test_every_update_must_happen() -> None:
    problem = chain()
    with pytest.raises(InvalidScheduleError, match="never computes up"):
        simulate(problem, with_frees(problem, on("d0", "a", "b", "c")))


def test_an_update_on_another_device_must_come_home() -> None:
    problem = chain(devices=2)
    away: list[Step] = [
        *on("d0", "a", "b", "c"),
        Transfer("w", "d0", "d1"),
        Transfer("c", "d0", "d1"),
        Compute("up", "d1"),
    ]
    with pytest.raises(InvalidScheduleError, match="new_w must be on d0, the home of w"):
        simulate(problem, with_frees(problem, away))
    home = [*away, Transfer("new_w", "d1", "d0")]
    result = simulate(problem, with_frees(problem, home))
    assert result.peak_bytes == {"d0": 407, "d1": 207}


def test_the_old_value_may_be_read_elsewhere_after_the_update() -> None:
    problem = chain(devices=2)
    steps: list[Step] = [
        Transfer("x", "d0", "d1"),
        Transfer("w", "d0", "d1"),
        *on("d0", "a", "b", "c", "up"),
        *on("d1", "a"),
    ]
    simulate(problem, with_frees(problem, steps))


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (on("d0", "b"), "a is not on d0"),
        (on("d9", "a"), "expected one of the devices"),
        ([Compute("nonsense", "d0")], "not an op of the graph"),
        ([Transfer("a", "d0", "d1")], "a is not on d0"),
        ([Transfer("x", "d0", "d2")], "expected one of the devices"),
        ([Transfer("x", "d0", "d1"), Transfer("x", "d0", "d1"), *on("d1", "c")], "is not on d1"),
    ],
)
def test_a_step_without_what_it_needs_is_refused(steps: list[Step], said: str) -> None:
    problem = chain(devices=2)
    with pytest.raises(InvalidScheduleError, match=said):
        simulate(problem, with_frees(problem, steps))


def test_a_double_free_is_refused() -> None:
    problem = chain()
    schedule = with_frees(problem, on("d0", "a", "b", "c", "up"))
    with pytest.raises(InvalidScheduleError, match="x is not on d0"):
        simulate(problem, Schedule((*schedule.steps, Free("x", "d0"))))


def test_a_copy_onto_a_copy_is_refused() -> None:
    problem = chain(devices=2)
    steps = (Transfer("x", "d0", "d1"), Transfer("x", "d0", "d1"))
    with pytest.raises(InvalidScheduleError, match="x is on d1 already"):
        simulate(problem, Schedule(steps))


def test_a_link_that_is_missing_carries_nothing() -> None:
    problem = chain(devices=2)
    one_way = replace(problem.platform, links=problem.platform.links[:1])
    problem = replace(problem, platform=one_way)
    steps: list[Step] = [Transfer("x", "d0", "d1"), Transfer("x", "d1", "d0")]
    with pytest.raises(InvalidScheduleError, match="no link from d1 to d0"):
        simulate(problem, with_frees(problem, steps))


def test_an_op_that_a_device_cannot_run_is_refused() -> None:
    problem = chain(devices=2)
    costs = {**problem.costs, "a": {"d1": OpCost(1.0)}}
    with pytest.raises(InvalidScheduleError, match="a cannot run on d0"):
        simulate(replace(problem, costs=costs), with_frees(problem, on("d0", "a")))


def test_devices_and_links_overlap_in_the_makespan() -> None:
    """d1 computes b from a copy of a while d0 goes on with another op."""
    tensors = (Tensor("x", 100, Role.BATCH), *(Tensor(n, 100) for n in ("a", "b", "c", "e")))
    ops = (
        Op("a", "k", ("x",), ("a",)),
        Op("b", "k", ("a",), ("b",)),
        Op("c", "k", ("a",), ("c",)),
        Op("e", "k", ("b", "c"), ("e",)),
    )
    platform = Platform(
        (Device("d0", "llvm"), Device("d1", "llvm")),
        (Link("d0", "d1", 0.0, 0.1), Link("d1", "d0", 0.0, 0.1)),
        alignment_bytes=4,
    )
    costs = {op.name: {"d0": OpCost(10.0), "d1": OpCost(10.0)} for op in ops}
    problem = Problem(OpGraph(tensors, ops, ("e",)), platform, costs)
    steps: list[Step] = [
        Compute("a", "d0"),
        Transfer("a", "d0", "d1"),
        Compute("c", "d0"),
        Compute("b", "d1"),
        Transfer("b", "d1", "d0"),
        Compute("e", "d0"),
    ]
    result = simulate(problem, with_frees(problem, steps))
    assert result.cost_us == pytest.approx(42.0)
    # a until 10, its copy until 11, b on d1 until 21 (c on d0 until 20), copy 22, e until 32.
    assert result.makespan_us == pytest.approx(32.0)
    slow = replace(problem, platform=replace(platform, handover_us=3.0))
    late = simulate(slow, with_frees(slow, steps))
    assert late.cost_us == result.cost_us
    # Each of the two copies begins 3 late, and is read 3 late.
    assert late.makespan_us == pytest.approx(32.0 + 2 * 2 * 3.0)


def test_copies_of_an_engine_take_turns_with_its_kernels() -> None:
    """a and b on d0, copied to d1: while d0 copies a, it does not run b."""
    tensors = (
        Tensor("x", 0, Role.BATCH),
        *(Tensor(name, 100) for name in ("a", "b", "end")),
    )
    ops = (
        Op("a", "k", ("x",), ("a",)),
        Op("b", "k", ("x",), ("b",)),
        Op("end", "k", ("a", "b"), ("end",)),
    )
    costs = {op.name: {"d0": OpCost(10.0), "d1": OpCost(10.0)} for op in ops}
    steps: list[Step] = [
        Compute("a", "d0"),
        Transfer("a", "d0", "d1"),
        Compute("b", "d0"),
        Transfer("b", "d0", "d1"),
        Compute("end", "d1"),
    ]

    def intervals(engine: str | None, handover_us: float) -> list[tuple[float, float]]:
        devices = (Device("d0", "llvm"), Device("d1", "llvm"))
        link = Link("d0", "d1", 0.0, 0.02, engine=engine)  # a copy takes 5
        platform = Platform(devices, (link,), "d0", 4, handover_us)
        problem = Problem(OpGraph(tensors, ops, ("end",)), platform, costs)
        schedule = with_frees(problem, steps)
        times = simulate(problem, schedule).intervals_us
        kept = zip(schedule.steps, times, strict=True)
        return [pytest.approx(time) for step, time in kept if not isinstance(step, Free)]

    # Its own stream: both hand over to it, and it to d1.
    assert intervals(None, 3.0) == [(0, 10), (13, 18), (10, 20), (23, 28), (31, 41)]
    # d0 copies: only d1 waits for another stream.
    assert intervals("d0", 3.0) == [(0, 10), (10, 15), (15, 25), (25, 30), (33, 43)]
    # d1 copies: it waits for d0, and no one for it.
    assert intervals("d1", 3.0) == [(0, 10), (13, 18), (10, 20), (23, 28), (28, 38)]


def test_a_copy_of_what_is_there_from_the_start_waits_for_nobody() -> None:
    tensors = (Tensor("x", 100, Role.BATCH), Tensor("a", 100))
    links = (Link("d0", "d1", 0.0, 0.1),)
    platform = Platform((Device("d0", "llvm"), Device("d1", "llvm")), links, "d0", 4, 3.0)
    graph = OpGraph(tensors, (Op("a", "k", ("x",), ("a",)),), ("a",))
    problem = Problem(graph, platform, {"a": {"d1": OpCost(10.0)}})
    steps: list[Step] = [Transfer("x", "d0", "d1"), Compute("a", "d1")]
    assert simulate(problem, with_frees(problem, steps)).makespan_us == pytest.approx(1 + 3 + 10)


def test_an_allocation_waits_until_an_overlapped_reader_has_freed_its_memory() -> None:
    """d0 has room for one of two tensors; the second waits until the copy of the first is done."""
    tensors = (
        Tensor("x", 0, Role.BATCH),
        *(Tensor(name, 100) for name in ("a", "b")),
        Tensor("end", 0),
    )
    ops = (
        Op("a", "k", ("x",), ("a",)),
        Op("b", "k", ("x",), ("b",)),
        Op("end", "k", ("a", "b"), ("end",)),
    )
    platform = Platform(
        (Device("d0", "llvm", 100), Device("d1", "llvm")),
        (Link("d0", "d1", 0.0, 0.01),),
        alignment_bytes=4,
    )
    costs = {op.name: {"d0": OpCost(1.0), "d1": OpCost(1.0)} for op in ops}
    problem = Problem(OpGraph(tensors, ops, ("end",)), platform, costs)
    steps: list[Step] = [
        Compute("a", "d0"),
        Transfer("a", "d0", "d1"),
        Compute("b", "d0"),
        Transfer("b", "d0", "d1"),
        Compute("end", "d1"),
    ]
    result = simulate(problem, with_frees(problem, steps))
    # a 0-1, copy 1-11; b may only start at 11, copy 12-22, end 23.
    assert result.makespan_us == pytest.approx(23.0)


@settings(max_examples=cases(150))
@given(scheduled())
def test_derived_frees_make_any_complete_program_valid_and_are_earliest(
    given_steps: Scheduled,
) -> None:
    problem, steps = given_steps
    schedule = with_frees(problem, steps)
    result = simulate(problem, schedule, enforce_budgets=False)
    handovers_us = 2 * schedule.transfers * (problem.platform.handover_us or 0.0)
    assert result.makespan_us <= result.cost_us + handovers_us + 1e-9
    # Earliest: moving any free one step forward breaks a rule.
    for position, step in enumerate(schedule.steps):
        if not isinstance(step, Free):
            continue
        before = position - 1
        while before >= 0 and isinstance(schedule.steps[before], Free):
            before -= 1
        if before < 0:
            continue
        moved = list(schedule.steps)
        moved.insert(before, moved.pop(position))
        with pytest.raises(InvalidScheduleError):
            simulate(problem, Schedule(tuple(moved)), enforce_budgets=False)


@given(scheduled(max_devices=2))
def test_a_schedule_survives_json(given_steps: Scheduled) -> None:
    schedule = with_frees(*given_steps)
    assert schedule_from_json(schedule_to_json(schedule)) == schedule


@pytest.mark.parametrize(
    "text", ["", "{}", '{"steps": [["compute", "a"]]}', '{"steps": [["jump"]]}', "[1]"]
)
def test_json_that_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(InvalidScheduleError):
        schedule_from_json(text)
