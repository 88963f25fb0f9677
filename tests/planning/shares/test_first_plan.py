"""The first plan keeps each share on its device, sums where the state lies, and waits for nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_xengine.planning.shares.first_plan import first_plan
from tvm_xengine.planning.shares.order import placed_in_order
from tvm_xengine.planning.shares.places import places_of_ops, spread_state
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute
from tvm_xengine.solvers.result import Objective

DEVICES = ("a", "b")
LAYERS = 3


def two_shares(budget_bytes: int = 10_000) -> Problem:
    """Two shares of a chain of layers: forward, gradients, their sums and updates."""
    tensors, ops = [Tensor(f"w{layer}", 64, Role.PARAMETER) for layer in range(LAYERS)], []
    for share in range(2):
        tensors.append(Tensor(f"x{share}", 64, Role.BATCH))
        before = f"x{share}"
        for layer in range(LAYERS):
            tensors.append(Tensor(f"h{layer}_{share}", 64))
            ops.append(Op(f"h{layer}_{share}", "f", (before, f"w{layer}"), (f"h{layer}_{share}",)))
            before = f"h{layer}_{share}"
        for layer in reversed(range(LAYERS)):
            tensors.append(Tensor(f"g{layer}_{share}", 64))
            read = (before, f"h{layer}_{share}", f"w{layer}")
            ops.append(Op(f"g{layer}_{share}", "g", read, (f"g{layer}_{share}",)))
            before = f"g{layer}_{share}"
    for layer in reversed(range(LAYERS)):
        tensors += [Tensor(f"s{layer}", 64), Tensor(f"u{layer}", 64)]
        ops.append(Op(f"s{layer}", "s", (f"g{layer}_0", f"g{layer}_1"), (f"s{layer}",)))
        ops.append(
            Op(
                f"u{layer}",
                "u",
                (f"w{layer}", f"s{layer}"),
                (f"u{layer}",),
                ((f"u{layer}", f"w{layer}"),),
                recomputable=False,
            )
        )
    links = tuple(Link(a, b, 2.0, 1.0) for a in DEVICES for b in DEVICES if a != b)
    platform = Platform(tuple(Device(d, "llvm", budget_bytes) for d in DEVICES), links)
    costs = {
        op.name: dict.fromkeys(DEVICES, OpCost(10.0 if op.kernel in "fg" else 1.0)) for op in ops
    }
    return Problem(OpGraph(tuple(tensors), tuple(ops)), platform, costs)


def share_of(problem: Problem) -> dict[str, int]:
    names = (*problem.graph.op, "x0", "x1")
    return {n: int(n[-1]) for n in names if n[0] == "x" or "_" in n}


def test_state_is_spread_and_sums_are_made_where_it_lies() -> None:
    problem = two_shares()
    home = spread_state(problem.graph, problem.platform, DEVICES, share_of(problem))
    assert sorted(home.values()) in (["a", "a", "b"], ["a", "b", "b"])
    places = places_of_ops(problem.graph, share_of(problem), DEVICES, home)
    for layer in range(LAYERS):
        assert places[f"s{layer}"] == places[f"u{layer}"] == home[f"w{layer}"]
        assert places[f"h{layer}_1"] == "b"


def test_sums_wait_for_no_copy_while_gradients_can_be_computed() -> None:
    problem = two_shares()
    places = places_of_ops(
        problem.graph, share_of(problem), DEVICES, dict.fromkeys(("w0", "w1", "w2"), "b")
    )
    ordered = placed_in_order(problem, places)
    names = [op.name for op in ordered.graph.ops]
    # The sum of the last layer's gradient needs a copy, which travels beside the next gradient.
    assert names.index("g2_1") < names.index("g1_1") < names.index("s2") < names.index("s0")
    assert set(names) == set(problem.graph.op)


@pytest.mark.parametrize("budget", [10_000, 520])
def test_shares_run_side_by_side(budget: int) -> None:
    problem = two_shares(budget)
    plan = first_plan(problem, share_of(problem), DEVICES, Objective.MAKESPAN)
    assert plan is not None
    on = {s.op: s.device for s in plan.schedule.steps if isinstance(s, Compute)}
    assert all(on[op] == DEVICES[share] for op, share in share_of(problem).items() if op in on)
    assert plan.problem.home["x1"] == "b"
    work_us = sum(cost["a"].compute_us for cost in problem.costs.values())
    assert plan.simulation.makespan_us < 0.75 * work_us
    assert all(size <= budget for size in plan.arenas.arena_bytes.values())


@pytest.mark.parametrize("reached", [("a", "b"), ("b",)])
def test_state_at_home_on_a_store_is_updated_on_a_device(reached: tuple[str, ...]) -> None:
    """Also where one of the devices has no link to the store."""
    problem = two_shares(520)
    store = Device("ram", None, 10_000)
    links = tuple(Link(*ends, 2.0, 1.0) for d in reached for ends in ((d, "ram"), ("ram", d)))
    platform = problem.platform
    platform = replace(
        platform, devices=(*platform.devices, store), links=(*platform.links, *links), home="ram"
    )
    problem = replace(problem, platform=platform)
    plan = first_plan(problem, share_of(problem), DEVICES, Objective.MAKESPAN)
    assert plan is not None
    assert {step.device for step in plan.schedule.steps if isinstance(step, Compute)} == {"a", "b"}
