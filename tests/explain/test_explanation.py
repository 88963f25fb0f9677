"""An explanation prints, has the same numbers as JSON, and its limits hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.explain.plans import chain_plan
from tvm_xengine.explain.explanation import ExplainOptions, explain_plan
from tvm_xengine.explain.fates import Fate, Stay, TensorFate
from tvm_xengine.explain.names import Names
from tvm_xengine.explain.prices.memory_price import memory_price, with_more_room
from tvm_xengine.explain.prices.smallest_budget import smallest_budget
from tvm_xengine.explain.prices.speedups import FASTER_RATIO, speedups
from tvm_xengine.explain.words.sentences import fate_in_words, reason_in_words
from tvm_xengine.explain.words.short_answers import peak_in_words
from tvm_xengine.planning.alternatives.changed_schedule import PlannedSteps, Way
from tvm_xengine.planning.alternatives.tensors import tensor_alternatives
from tvm_xengine.solvers.result import Limits, Status
from tvm_xengine.solvers.solve import solve


def test_an_explanation_prints_within_80_columns_and_has_its_numbers_as_json() -> None:
    found = explain_plan(chain_plan())
    assert max(map(len, str(found).splitlines())) <= 80
    document = json.loads(found.to_json())
    assert document["value"] == found.value
    assert [row["name"] for row in document["tensors"]] == [one.name for one in found.tensors]
    offered = {
        row["name"]: [one["difference"] for one in row["alternatives"] or ()]
        for row in document["tensors"]
    }
    for tensor in found.tensors:
        assert offered[tensor.name] == [one.difference for one in tensor.alternatives or ()]


def test_a_tensor_is_told_with_its_type_and_shape() -> None:
    plan = chain_plan()
    graph = plan.problem.graph
    tensors = tuple(replace(one, shape=(16, 4), dtype="float32") for one in graph.tensors)
    problem = replace(plan.problem, graph=replace(graph, tensors=tensors))
    name = graph.ops[0].outputs[0]
    found = explain_plan(replace(plan, problem=problem), ExplainOptions(name))
    assert "float32[16, 4]" in str(found)


def test_only_what_is_asked_about_is_explained() -> None:
    plan = chain_plan()
    (device,) = plan.problem.platform.devices
    name = plan.problem.graph.ops[0].outputs[0]
    of_tensor = explain_plan(plan, ExplainOptions(name))
    assert [one.name for one in of_tensor.tensors] == [name]
    assert not of_tensor.devices
    of_device = explain_plan(plan, ExplainOptions(device.name))
    assert [one.device for one in of_device.devices] == [device.name]
    assert not of_device.tensors


def test_no_schedule_is_found_below_the_least_budget() -> None:
    plan = chain_plan()
    (device,) = plan.problem.platform.devices
    found = smallest_budget(plan, device.name, 5.0)
    assert found.least_bytes <= found.known_bytes <= plan.arenas.arena_bytes[device.name]
    known = plan.problem.with_budgets({device.name: found.known_bytes})
    assert solve(known, "greedy", limits=Limits(5.0)).schedule is not None
    less = plan.problem.with_budgets({device.name: found.least_bytes - 1})
    assert solve(less, limits=Limits(5.0)).status is Status.INFEASIBLE


@pytest.mark.parametrize("ops", [6, 10, 14])
def test_more_memory_buys_at_least_what_one_tensor_alone_would_save(ops: int) -> None:
    plan = chain_plan(ops)
    (device,) = plan.problem.platform.devices
    larger = 2 * device.budget_bytes
    found = with_more_room(plan, device.name, larger, 60.0)
    assert found.arenas.arena_bytes[device.name] <= larger
    roomy = PlannedSteps(replace(plan, problem=plan.problem.with_budgets({device.name: larger})))
    single = [
        one
        for tensor in plan.problem.graph.bases
        for one in tensor_alternatives(roomy, tensor.name)
        if one.way is Way.KEEP and one.fits and one.difference < 0
    ]
    assert single  # a chain that recomputes has something to keep
    saved = plan.simulation.cost_us - found.simulation.cost_us
    assert saved >= -min(one.difference for one in single) * (1 - 1e-9)


def test_a_front_passes_through_the_plan_and_falls() -> None:
    plan = chain_plan()
    (device,) = plan.problem.platform.devices
    points = explain_plan(plan, ExplainOptions(None, 0.3, 0.6)).devices[0].front
    values = [one.value for one in points if one.value is not None]
    assert values == sorted(values, reverse=True)
    assert {one.budget_bytes: one.value for one in points}[device.budget_bytes] == (
        plan.simulation.cost_us
    )
    assert all(one.value is None or one.bound <= one.value for one in points)


def test_a_peak_says_whether_the_budget_binds_there_or_at_another() -> None:
    (finding,) = explain_plan(chain_plan()).devices
    free, bound = (replace(finding.time_points[0], binds=binds, step=7) for binds in (False, True))
    assert peak_in_words([bound]).endswith("would fit.")
    assert "but during step 7" in peak_in_words([free, bound])
    assert "at none of the peaks" in peak_in_words([free, free])


def test_a_tensor_that_does_not_fit_says_so_before_what_else_it_could_cost() -> None:
    told = 0
    for one in explain_plan(chain_plan()).tensors:
        kept = [other for other in one.alternatives or () if other.way is Way.KEEP]
        if one.fate.fate is Fate.RECOMPUTED and kept and not kept[0].fits:
            assert one.alternatives
            why = reason_in_words(one.alternatives, "us")
            assert why.startswith("because it does not fit to keep it")
            told += 1
    assert told


def test_copies_are_told_by_where_they_go() -> None:
    def stay(device: str, came_by: str) -> Stay:
        return Stay(device, came_by, 0, 1, "", True)

    out, back = stay("disk", "copied from cpu"), stay("cpu", "copied from disk")
    made = stay("cpu", "made")
    told = {1: "copied to disk", 2: "copied to disk and back", 3: "copied 3 times"}
    for moves, words in told.items():
        stays = (made, *[out, back, out][:moves])
        assert fate_in_words(TensorFate(Fate.MOVED, 0, moves, stays)) == words


def test_more_memory_saves_no_more_than_the_bound_leaves() -> None:
    plan = chain_plan()
    (device,) = plan.problem.platform.devices
    price = memory_price(plan, device.name, 2.0)
    assert price is not None
    assert 0 <= price.saved <= price.saved_at_most < plan.simulation.cost_us
    assert price.saved_per_mib == pytest.approx(price.saved / (price.more_bytes / 2**20))


def test_a_faster_op_gains_its_share_of_the_sum_of_times() -> None:
    plan = chain_plan()
    for one in speedups(plan, Names(plan.problem.graph)):
        assert one.gain == pytest.approx(FASTER_RATIO * one.busy_us)


def test_ops_of_a_layer_share_a_table_with_the_slowest_first() -> None:
    plan = chain_plan(ops=24)
    every = explain_plan(plan, ExplainOptions("*"))
    text = str(every)
    assert max(map(len, text.splitlines())) <= 80
    named = [line.split()[0] for line in text.splitlines() if line.split()]
    slowest = sorted(every.ops, key=lambda op: -sum(op.compute_us[device] for _, device in op.runs))
    assert [name for name in named if name in {op.name for op in slowest[:16]}][:16] == [
        op.name for op in slowest[:16]
    ]
    assert f"The other {len(every.ops) - 16} ops take less." in text
