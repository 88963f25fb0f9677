"""One replica stands for all: exchanges are ops of the network, and grow with the number of replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planning.shares.test_first_plan import LAYERS, share_of, two_shares
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.shares.one_of_many import (
    NETWORK,
    Exchanges,
    one_of_many,
    places_of_one,
)
from tvm_xengine.planning.shares.order import placed_in_order
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.replicas.group import ReplicaGroup
from tvm_xengine.solvers.result import Objective


def one(count: int, bucket_bytes: int = 0, latency_us: float = 1.0) -> Problem:
    two = two_shares()
    platform = two.platform.only(["a"])
    costs = {op: {"a": there["a"]} for op, there in two.costs.items()}
    machine = replace(two, platform=platform, costs=costs, home={})
    group = ReplicaGroup(Platform(platform.devices), count, latency_us, 0.001)
    sums = {f"s{layer}" for layer in range(LAYERS)}
    return one_of_many(machine, share_of(two), Exchanges(sums, ()), group, bucket_bytes)


def makespan_us(problem: Problem) -> float:
    plan = any_plan(placed_in_order(problem, places_of_one(problem, "a")), Objective.MAKESPAN)
    assert plan is not None
    return plan.simulation.makespan_us


def test_a_machine_has_its_share_and_the_network_the_sums() -> None:
    problem = one(4)
    assert not [op for op in problem.graph.op if op.endswith("_1")]
    on_network = [op for op, there in problem.costs.items() if there.keys() == {NETWORK}]
    assert sorted(on_network) == ["s0", "s1", "s2"]
    # 64 bytes: 6 messages of 16 bytes at 1 byte a microsecond, and the latency of each.
    assert problem.costs["s0"][NETWORK].compute_us == pytest.approx(6 * (1.0 + 16.0))


def test_buckets_hold_gradients_together_and_cost_less_latency() -> None:
    problem = one(4, bucket_bytes=128, latency_us=100.0)
    sums = [op for op in problem.graph.ops if op.kernel == "s"]
    assert [len(op.outputs) for op in sums] == [2, 1]
    alone = sum(one(4, latency_us=100.0).costs[f"s{k}"][NETWORK].compute_us for k in range(LAYERS))
    assert sum(problem.costs[op.name][NETWORK].compute_us for op in sums) < alone


def test_exchanges_run_beside_the_backward_pass() -> None:
    problem = one(2)
    network_us = sum(problem.costs[f"s{k}"][NETWORK].compute_us for k in range(LAYERS))
    compute_us = sum(there["a"].compute_us for there in problem.costs.values() if "a" in there)
    assert max(network_us, compute_us) < makespan_us(problem) < network_us + compute_us
    assert makespan_us(one(64)) > makespan_us(one(8)) > makespan_us(problem)
