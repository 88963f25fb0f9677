"""An explanation prints, has the same numbers as JSON, and its limits hold."""

from __future__ import annotations

import json

import pytest

from tests.explain.plans import chain_plan
from tvm_xengine.explain.explanation import ExplainOptions, explain_plan
from tvm_xengine.explain.names import Names
from tvm_xengine.explain.prices.memory_price import memory_price
from tvm_xengine.explain.prices.smallest_budget import smallest_budget
from tvm_xengine.explain.prices.speedups import FASTER_RATIO, speedups
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
