"""Costs that follow what was measured, and plans that follow the costs."""

from dataclasses import replace

import pytest

from tests.solvers.samples.chains import training_chain
from tvm_xengine.planning.measured_in_place import as_measured
from tvm_xengine.planning.plan_again import plan_again, plan_in_turn
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import CostSource, OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, Transfer
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.request import PROOF_RATIO
from tvm_xengine.solvers.result import Limits, Objective, Status

QUICK = PlanOptions(limits=Limits(30.0))


def _two_devices() -> Problem:
    """Ops a, b, c in a chain; a and c have the same kernel."""
    graph = OpGraph(
        (Tensor("x", 8, Role.BATCH), *(Tensor(name, 8) for name in "abc")),
        (Op("a", "k", ("x",), ("a",)), Op("b", "m", ("a",), ("b",)), Op("c", "k", ("b",), ("c",))),
        ("c",),
    )
    platform = Platform(
        (Device("d0", "llvm", power_w=2.0), Device("d1", "llvm")),
        (Link("d0", "d1", 1.0, 8.0), Link("d1", "d0", 1.0, 8.0)),
    )
    costs = {
        op: {"d0": OpCost(10.0, energy_uj=25.0), "d1": OpCost(20.0, interval_us=(10.0, 40.0))}
        for op in "abc"
    }
    return Problem(graph, platform, costs)


def _kernel_of(op: str, device: str, _variant: str) -> str:
    return "k" if op in "ac" else "m"


def test_what_ran_has_its_time_and_the_rest_is_as_much_slower() -> None:
    problem = _two_devices()
    schedule = Schedule((Compute("a", "d0"), Transfer("a", "d0", "d1"), Compute("b", "d1")))
    found = as_measured(problem, schedule, {0: 30.0, 1: 4.004, 2: 25.0}, _kernel_of)
    assert found.costs["a"]["d0"].compute_us == 30.0
    assert found.costs["a"]["d0"].source is CostSource.MEASURED
    assert found.costs["a"]["d0"].energy_uj == pytest.approx(25.0 + 2.0 * 20.0)
    assert found.costs["c"]["d0"].compute_us == 30.0  # the same kernel
    assert found.costs["b"]["d0"].compute_us == 30.0  # three times as slow, like the device
    assert found.costs["b"]["d0"].source is CostSource.GIVEN
    assert found.costs["c"]["d1"].compute_us == 25.0
    assert found.costs["c"]["d1"].interval_us == pytest.approx((12.5, 50.0))
    forth, back = found.platform.links
    assert forth.transfer_us(8) == pytest.approx(4.004)
    assert back == problem.platform.links[1]


def test_a_device_where_nothing_ran_is_as_much_slower_as_all_that_ran() -> None:
    schedule = Schedule((Compute("a", "d0"), Compute("b", "d0")))
    found = as_measured(_two_devices(), schedule, {0: 15.0, 1: 25.0}, _kernel_of)
    assert found.costs["c"]["d1"].compute_us == 40.0


def test_a_time_of_nothing_is_a_cost_all_the_same() -> None:
    schedule = Schedule((Compute("a", "d0"),))
    assert as_measured(_two_devices(), schedule, {0: 0.0}, _kernel_of).costs["a"]["d0"].lo_us > 0


def test_the_predicted_time_is_the_measured_one() -> None:
    problem = training_chain(12, 60)
    schedule = plan_schedule(problem, QUICK).schedule
    times_us = {
        k: 3.0 + k % 5 for k, step in enumerate(schedule.steps) if isinstance(step, Compute)
    }
    found = as_measured(problem, schedule, times_us, lambda op, _device, _variant: op)
    assert simulate(found, schedule).cost_us == pytest.approx(sum(times_us.values()))


def test_a_schedule_changes_where_the_costs_turn_it_around() -> None:
    problem = _two_devices()
    plan = plan_schedule(problem, QUICK)
    assert plan.simulation.cost_us == 30.0
    slow = {
        op: {**there, "d0": replace(there["d0"], compute_us=90.0)}
        for op, there in problem.costs.items()
    }
    kept, better = plan_again(plan, replace(problem, costs=slow), QUICK)
    assert kept.schedule == plan.schedule
    assert kept.result.value == kept.simulation.cost_us == 270.0
    assert better is not None and better.simulation.cost_us == pytest.approx(
        kept.result.bound, rel=PROOF_RATIO
    )
    assert better.result.status is Status.OPTIMAL
    again, none = plan_again(better, better.problem, QUICK)
    assert none is None and again.schedule == better.schedule
    assert again.result.status is Status.OPTIMAL


def test_in_turn_the_sum_of_times_is_least() -> None:
    """Side by side, b and c take 20 beside a copy; one after the other they are best on one device."""
    problem = _two_devices()
    x, a, b, c = problem.graph.tensors
    ops = (problem.graph.ops[0], replace(problem.graph.ops[1]), Op("c", "k", ("a",), ("c",)))
    problem = replace(problem, graph=OpGraph((x, a, b, c), ops, ("b", "c")))
    problem = replace(problem, costs={op: {d: OpCost(10.0) for d in ("d0", "d1")} for op in "abc"})
    unproven = PlanOptions(objective=Objective.MAKESPAN, limits=Limits(2.0))
    plan = plan_schedule(problem, unproven)
    assert plan.step_us() == plan.simulation.makespan_us == pytest.approx(21.001)
    found = plan_in_turn(plan, QUICK)
    assert found is not None and found.problem == problem
    assert found.step_us() == found.simulation.cost_us == found.result.bound == 30.0
