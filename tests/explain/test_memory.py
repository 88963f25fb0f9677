"""What is said to lie in memory adds up to what the validator counts."""

from __future__ import annotations

from hypothesis import given, settings

from tests.explain.plans import chain_plan, plans
from tests.strategies import cases
from tvm_xengine.explain.fates import Fate, fates
from tvm_xengine.explain.memory import Memory
from tvm_xengine.explain.names import Names
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.schedule import Compute


def _memory(plan: Plan) -> Memory:
    return Memory(plan, Names(plan.problem.graph))


@settings(max_examples=cases(60))
@given(plans())
def test_what_is_held_during_a_step_sums_to_the_live_bytes(plan: Plan) -> None:
    memory = _memory(plan)
    for device, live in memory.live.items():
        for step, total in enumerate(live):
            assert sum(one.size_bytes for one in memory.held(device, step)) == total


@settings(max_examples=cases(60))
@given(plans())
def test_time_points_begin_with_the_peak_and_are_told_apart_by_category_and_layer(
    plan: Plan,
) -> None:
    memory = _memory(plan)
    for device in plan.problem.platform.devices:
        points = memory.time_points(device.name)
        peak = plan.simulation.peak_bytes[device.name]
        assert [point.live_bytes for point in points[:1]] == [peak][: bool(peak)]
        for point in points:
            assert sum(point.category_bytes.values()) == point.live_bytes
            assert sum(point.layer_bytes.values()) == point.live_bytes
            assert point.room_bytes == device.budget_bytes - point.live_bytes


@settings(max_examples=cases(60))
@given(plans())
def test_every_tensor_that_is_made_has_a_fate_and_every_copy_is_told(plan: Plan) -> None:
    found = fates(plan)
    made = {
        output
        for step in plan.schedule.steps
        if isinstance(step, Compute)
        for output in plan.problem.graph.op[step.op].outputs
    }
    assert made | set(plan.problem.home) == set(found)
    assert sum(fate.moves for fate in found.values()) <= plan.schedule.transfers
    for name, fate in found.items():
        if fate.recomputed and name not in plan.problem.graph.update_of:
            assert plan.schedule.computed.count(plan.problem.graph.producer[name]) > 1


def test_the_peak_of_a_plan_that_recomputes_binds() -> None:
    plan = chain_plan()
    (device,) = plan.problem.platform.devices
    assert any(fate.fate is Fate.RECOMPUTED for fate in fates(plan).values())
    assert any(point.binds for point in _memory(plan).time_points(device.name))
