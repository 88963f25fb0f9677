"""A first plan of a step in shares: each share on its device, the same plan however busy the machine is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.shares.order import placed_in_order
from tvm_xengine.planning.shares.places import places_of_ops, spread_state
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.time_source import MACHINE_TIME, TimeSource


def first_plan(
    problem: Problem,
    share_of: Mapping[str, int],
    devices: Sequence[str],
    objective: Objective,
    clock: TimeSource = MACHINE_TIME,
) -> Plan | None:
    """The better plan of two homes of the state: all on the platform's home device, or spread.

    None where neither has a schedule within the budgets in which each share stays on its device.

    Parameters
    ----------
    share_of
        The share of each op that works on one, and of each input that is one.
    devices
        The device of each share.
    clock
        As of `any_plan`.
    """
    resident = {tensor.name for tensor in problem.graph.bases if tensor.role.is_resident}
    of_shares = {name: devices[share] for name, share in share_of.items() if name in resident}
    spread = spread_state(problem.graph, problem.platform, devices, share_of)
    plans = []
    for home in ({}, spread) if spread else ({},):
        housed = replace(problem, home={**home, **of_shares})
        if not housed.state_fits:
            continue
        near = {  # what is at home on a store is updated on the first device
            name: at if problem.platform.device(at).can_compute else devices[0]
            for name, at in housed.home.items()
        }
        places = places_of_ops(problem.graph, share_of, devices, near)
        places |= problem.constraints.pinned  # what is pinned elsewhere stays there
        found = any_plan(placed_in_order(housed, places), objective, clock=clock)
        if found is not None:
            plans.append(replace(found, problem=housed))
    return min(plans, key=lambda plan: objective.of(plan.simulation), default=None)
