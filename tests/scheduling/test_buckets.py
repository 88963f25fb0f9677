"""Which sums are exchanged together, and who adds them."""

from __future__ import annotations

from tests.planning.shares.test_first_plan import DEVICES, LAYERS, share_of, two_shares
from tvm_xengine.planning.shares.places import spread_state
from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.scheduling.replicas.buckets import buckets_of, owners

SUMS = [f"s{layer}" for layer in reversed(range(LAYERS))]


def test_a_bucket_is_closed_once_it_is_large_enough() -> None:
    graph = two_shares().graph
    assert buckets_of(graph, SUMS, 1) == (("s2",), ("s1",), ("s0",))
    assert buckets_of(graph, SUMS, 65) == (("s2", "s1"), ("s0",))
    assert buckets_of(graph, SUMS, 1000) == (("s2", "s1", "s0"),)
    assert buckets_of(graph, ["g0_0"], 1) == ()  # a sum reads it, which is no update


def test_shares_add_as_much() -> None:
    graph = two_shares().graph
    assert owners(graph, [("s2", "s1"), ("s0",)], 2) == [0, 1]
    assert owners(graph, [("s2",), ("s1",), ("s0",)], 2) == [0, 1, 0]


def test_what_a_bucket_updates_is_at_home_where_it_is_added() -> None:
    problem = two_shares()
    graph = problem.graph
    ops = [op for op in graph.ops if op.name not in {"s2", "s1"}]
    flat, first = graph.op["s2"], next(k for k, op in enumerate(ops) if op.name == "u2")
    # The second share adds: its own gradients come one by one.
    bucket = type(flat)("bucket", "s", ("g2_0", "g2_1", "g1_1"), ("s2", "s1"))
    made = OpGraph(graph.tensors, (*ops[:first], bucket, *ops[first:]), graph.outputs)
    home = spread_state(made, problem.platform, DEVICES, share_of(problem))
    assert (home["w2"], home["w1"], home["w0"]) == ("b", "b", "a")
