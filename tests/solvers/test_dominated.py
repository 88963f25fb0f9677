"""Devices that another one matches are of no use: exhaustive search finds nothing better with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.oracles.exhaustive import solve_exhaustively
from tests.strategies import cases, problems
from tvm_xengine.scheduling.platform import Device, Link
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.solvers.presolve import without_dominated_devices
from tvm_xengine.solvers.result import Objective


@st.composite
def with_a_dominated_device(draw: st.DrawFn) -> Problem:
    """A problem whose last device is as far as the one before, no faster, or only stores."""
    problem = draw(problems(max_devices=2))
    assume(len(problem.platform.devices) == 2)
    first, second = (device.name for device in problem.platform.devices)
    assume(second not in problem.home.values() and problem.platform.devices[0].can_compute)
    per_unit, slower = draw(st.sampled_from((0.032, 0.064))), st.integers(0, 2).map(float)
    stores = draw(st.booleans())
    names = (first, second, "dominated")
    devices = (
        problem.platform.devices[0],
        replace(problem.platform.devices[1], budget_bytes=2**20),
        Device("dominated", None if stores else "llvm", draw(st.sampled_from((256, 512, 2**20)))),
    )
    links = tuple(
        Link(a, b, 2.0 + ("dominated" in (a, b)) * draw(slower), per_unit, 31.25)
        for a in names
        for b in names
        if a != b
    )
    costs = {
        op: there
        if stores or second not in there
        else {
            **there,
            "dominated": OpCost(
                there[second].compute_us + draw(slower),
                energy_uj=there[second].energy_uj + draw(slower),
                workspace_bytes=there[second].workspace_bytes,
            ),
        }
        for op, there in problem.costs.items()
    }
    platform = replace(problem.platform, devices=devices, links=links, home=first)
    return replace(problem, platform=platform, costs=costs)


@settings(max_examples=cases(120), suppress_health_check=list(HealthCheck))
@given(
    problem=with_a_dominated_device(), objective=st.sampled_from((Objective.COST, Objective.ENERGY))
)
def test_nothing_is_lost_without_a_device_that_another_dominates(
    problem: Problem, objective: Objective
) -> None:
    reduced = without_dominated_devices(problem, objective)
    assume(reduced is not problem)
    whole = solve_exhaustively(problem, objective=objective.value)
    assume(whole.is_proven)
    part = solve_exhaustively(reduced, objective=objective.value)
    assert part.is_infeasible is whole.is_infeasible
    assert part.value == pytest.approx(whole.value)
