"""Layouts in which streams that run side by side do not wait for each other's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tvm_xengine.errors import BudgetExceededError, InvalidScheduleError
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.arena.plan import PACKING_EFFORT, QUICK_EFFORT, ArenaPlan, plan_arenas
from tvm_xengine.scheduling.arena.timeline import Timeline
from tvm_xengine.scheduling.schedule import Compute, Schedule, with_frees

_SLACK_RATIOS = (0.0, 0.02)
"""Shares of the step by which a call may end later than predicted until another stream waits for its bytes;
the larger where it fits. Of two devices on ResNet-8, DS-CNN and gpt_nano 0.02 took 1.1 to 1.6 times the bytes
of a layout by steps, 0.1 up to 2.4 times, and arenas beyond the caches cost time, too."""
_EFFORTS = (QUICK_EFFORT // 10, QUICK_EFFORT, PACKING_EFFORT)
"""For a layout that only has to fit: the next where none did, but only without slack. Of three schedules of
LeNet on four devices, one waits for 30 % of the step with the first two, and not at all with the last."""


def as_it_runs(
    plan: Plan,
    *,
    reserve_home: bool = False,
    effort: int = PACKING_EFFORT,
    is_late: Callable[[], bool] = lambda: False,
) -> Plan:
    """The plan; where it is overlapped, in the layout of the least makespan, or on one device after all.

    Bytes that are free by the order of steps may still be in use, because streams run ahead of each
    other, and the stream that takes them over waits. Where the budgets have room, they lie apart. Where
    all that does not save what streams take to start, the whole step runs on one device that has room.

    Parameters
    ----------
    reserve_home
        Whether all state lies at the bottom of its arena, as it does in the plan.
    effort
        For laying out the step on one device; the most for layouts in time, too.
    is_late
        Asked before each layout in time but the first, and before each device is tried alone.
    """
    if not plan.is_overlapped:
        return plan
    found = in_streams(plan, is_late, reserve_home=reserve_home, effort=effort)
    if not plan.has_streams:
        return found
    alone = (
        None if is_late() else _alone_on(plan, device.name, effort)
        for device in plan.problem.platform.computing
    )
    return min([found, *(one for one in alone if one is not None)], key=Plan.step_us)


def in_streams(
    plan: Plan,
    is_late: Callable[[], bool] = lambda: False,
    *,
    reserve_home: bool = False,
    effort: int = PACKING_EFFORT,
) -> Plan:
    """An overlapped plan in its own layout, or in one in which streams wait less for each other's memory."""
    as_is = plan.laid_out(plan.arenas)
    if not plan.has_streams:
        return as_is
    in_time = _in_time(plan, is_late, reserve_home=reserve_home, effort=effort)
    return min(in_time, as_is, key=Plan.step_us)


def _in_time(plan: Plan, is_late: Callable[[], bool], *, reserve_home: bool, effort: int) -> Plan:
    problem, schedule, simulation = plan.problem, plan.schedule, plan.simulation
    chosen = dict.fromkeys(problem.platform.index, plan.arenas)
    attempts = [(ratio, _EFFORTS[0]) for ratio in _SLACK_RATIOS]
    attempts[1:1] = [(_SLACK_RATIOS[0], more) for more in _EFFORTS[1:] if more <= effort]
    waits = set(chosen)
    for number, (ratio, spent) in enumerate(attempts):
        if number and is_late():
            break
        if number and ratio == _SLACK_RATIOS[0] and not waits:
            continue
        timeline = Timeline(simulation.intervals_us, ratio * simulation.makespan_us)
        arenas = plan_arenas(
            problem, schedule, effort=spent, reserve_home=reserve_home, timeline=timeline
        )
        too_large = arenas.excess_bytes(problem.platform)
        chosen |= {device: arenas for device in chosen if device not in too_large}
        waits -= chosen.keys() - too_large.keys()
    return plan.laid_out(_joined(schedule, chosen))


def _alone_on(plan: Plan, device: str, effort: int) -> Plan | None:
    """The step that keeps every tensor, on one device; None where it cannot run or does not fit there."""
    problem = plan.problem
    ops = [op.name for op in problem.graph.ops]
    if not all(problem.can_run(op, device) for op in ops):
        return None
    try:
        schedule = with_frees(problem, [Compute(op, device) for op in ops])
        alone = Plan.of_schedule(problem, schedule, plan.result.solver, effort=effort)
    except (InvalidScheduleError, BudgetExceededError):
        return None
    if alone.arenas.excess_bytes(problem.platform):
        return None
    result = replace(plan.result, schedule=schedule)
    return replace(alone, result=result).laid_out(alone.arenas)


def _joined(schedule: Schedule, arenas: Mapping[str, ArenaPlan]) -> ArenaPlan:
    """The layout of each device from another plan of the same schedule."""
    first = next(iter(arenas.values()))
    return replace(
        first,
        offset_bytes=tuple(
            arenas[each.device].offset_bytes[each.id] for each in first.residency.instances
        ),
        workspace_offset_bytes={
            at: arenas[step.device].workspace_offset_bytes[at]
            for at, step in enumerate(schedule.steps)
            if isinstance(step, Compute) and at in first.workspace_offset_bytes
        },
        arena_bytes={device: found.arena_bytes[device] for device, found in arenas.items()},
    )
