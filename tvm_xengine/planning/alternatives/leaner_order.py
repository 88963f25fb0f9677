"""The runs of a plan in an order that needs less memory."""

from __future__ import annotations

from dataclasses import replace

from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.schedule import Compute, with_frees
from tvm_xengine.solvers.greedy.lean_order import in_grouped_order, in_lean_order
from tvm_xengine.solvers.greedy.solve import accepted
from tvm_xengine.solvers.index_problem import index_problem, summed

_SAME_RATIO = 1e-9
"""Costs that are added in another order differ by less."""


def in_leaner_order(plan: Plan, *, reserve_home: bool = False) -> Plan:
    """The plan, or its runs in another order that takes as long in smaller arenas.

    Where budgets have room for everything, every order of the ops is as fast, and solvers take that of
    the graph. Plans that repeat or copy something, or in which devices run side by side, stay as they
    are: their order is part of what the search has chosen.

    Parameters
    ----------
    reserve_home
        As in `plan_arenas`.
    """
    problem, objective, schedule = plan.problem, plan.result.objective, plan.schedule
    if plan.is_overlapped or schedule.recomputed_ops or schedule.transfers:
        return plan
    runs = {step.op: step for step in schedule.steps if isinstance(step, Compute)}
    most = (1 + _SAME_RATIO) * objective.of(plan.simulation)
    indexed = index_problem(problem, summed(objective))
    for reorder in (in_lean_order, in_grouped_order):
        schedule = with_frees(problem, [runs[op] for op in reorder(indexed).op_names])
        simulation = accepted(problem, schedule)
        if simulation is None or objective.of(simulation) > most:
            continue
        arenas = plan_arenas(problem, schedule, reserve_home=reserve_home)
        less = [plan.arenas.arena_bytes[d] - size for d, size in arenas.arena_bytes.items()]
        if min(less) >= 0 < max(less):
            result = replace(plan.result, schedule=schedule)
            plan = replace(
                plan, result=result, schedule=schedule, simulation=simulation, arenas=arenas
            )
    return plan
