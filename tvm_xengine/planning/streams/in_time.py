"""Layouts in which streams that run side by side do not wait for each other's memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from tvm_xengine.errors import BudgetExceededError, InvalidScheduleError
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.arena.fewer_waits import arenas_with_fewer_waits
from tvm_xengine.scheduling.arena.plan import (
    PACKING_EFFORT,
    QUICK_EFFORT,
    ArenaPlan,
    plan_arenas,
    quick_effort,
)
from tvm_xengine.scheduling.arena.timeline import Timeline
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, with_frees
from tvm_xengine.scheduling.simulate import simulate

_SLACK_RATIO = 0.02
"""Share of the step by which a call may end later than predicted until another stream waits for its bytes,
where that fits. Of two devices on ResNet-8, DS-CNN and gpt_nano 0.02 took 1.1 to 1.6 times the bytes of a
layout by steps, 0.1 up to 2.4 times, and arenas beyond the caches cost time, too."""
_SPARE_RATIOS = (0.03, 0.08, 0.15, 0.25, 0.4, 1.0)
"""Shares of a budget that are left to the gaps of a layout: streams run so far ahead of each other that they
hold together what is left. The first that fits is taken. With 1 no stream runs ahead of a free."""
_EFFORTS = (QUICK_EFFORT // 10, QUICK_EFFORT, PACKING_EFFORT)
"""For a layout that only has to fit: the next where none did, but only without slack. Of three schedules of
LeNet on four devices, one waits for 30 % of the step with the first two, and not at all with the last."""
_SEARCH_EFFORT = 5
"""Of quick layouts, for one in which streams wait little: 0.3 to 0.6 s on ResNet-8, ResNet-18 and gpt_nano.
On a schedule each of ResNet-8 and gpt_nano, steps take 1.9 and 6.3 % longer with a fifth of it, and 0 and
1.9 % less with four times as much."""


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
    """An overlapped plan in its own layout, or in one in which streams wait less for each other's memory.

    A plan whose own layout exceeds the budgets may get one that fits.
    """
    as_is = plan.laid_out(plan.arenas)
    if not plan.has_streams:
        return as_is
    in_time = _in_time(plan, is_late, reserve_home=reserve_home, effort=effort)
    found = min(in_time, as_is, key=_by_excess_and_time)
    return found if is_late() else with_fewer_waits(found, reserve_home=reserve_home)


def with_fewer_waits(plan: Plan, *, reserve_home: bool = False, seed: int = 0) -> Plan:
    """The plan, or the same schedule in a layout in which streams wait less, as a search finds.

    Parameters
    ----------
    reserve_home
        As in `as_it_runs`.
    """
    promised = simulate(plan.problem, plan.schedule)
    fits = not plan.arenas.excess_bytes(plan.problem.platform)
    if fits and plan.simulation.makespan_us <= promised.makespan_us:
        return plan
    arenas = arenas_with_fewer_waits(
        plan.problem,
        plan.schedule,
        plan.arenas,
        Timeline(promised.intervals_us),
        effort=_SEARCH_EFFORT * quick_effort(len(plan.schedule.steps)),
        seed=seed,
        reserve_home=reserve_home,
    )
    return min(plan, plan.laid_out(arenas), key=_by_excess_and_time)


def _by_excess_and_time(plan: Plan) -> tuple[bool, float]:
    """Whether its layout exceeds a budget, and the time of a step."""
    return bool(plan.arenas.excess_bytes(plan.problem.platform)), plan.step_us()


def _in_time(plan: Plan, is_late: Callable[[], bool], *, reserve_home: bool, effort: int) -> Plan:
    """The plan in a layout in which streams wait less; where it has no room, in that of the plan.

    Streams that run as far ahead of each other as the bytes allow may leave no room for the gaps of a
    layout. Then they run less far ahead, as if budgets were smaller.
    """
    problem, schedule, simulation = plan.problem, plan.schedule, plan.simulation
    chosen = dict.fromkeys(problem.platform.index, plan.arenas)
    waits, intervals_us = set(chosen), simulation.intervals_us
    attempts = [(0.0, more) for more in _EFFORTS if more <= effort or more == _EFFORTS[0]]
    attempts += [(spare, _EFFORTS[0]) for spare in _SPARE_RATIOS]
    slack_us = _SLACK_RATIO * simulation.makespan_us
    for number, (spare, spent) in enumerate([*attempts, (0.0, _EFFORTS[0])]):
        is_last = number == len(attempts)
        if number and is_late():
            break
        if not (waits or is_last):
            continue
        if spare:
            intervals_us = _less_far_ahead(problem, schedule, spare, waits)
        arenas = plan_arenas(
            problem,
            schedule,
            effort=spent,
            reserve_home=reserve_home,
            timeline=Timeline(intervals_us, is_last * slack_us),
        )
        too_large = arenas.excess_bytes(problem.platform)
        chosen |= {device: arenas for device in chosen if device not in too_large}
        waits -= chosen.keys() - too_large.keys()
    return plan.laid_out(_joined(schedule, chosen))


def _less_far_ahead(
    problem: Problem, schedule: Schedule, spare_ratio: float, devices: Collection[str]
) -> tuple[tuple[float, float], ...]:
    """When steps run if streams hold less together on some devices, by this share of the budgets."""
    budgets = {name: problem.platform.device(name).budget_bytes for name in devices}
    left = {name: max(1, int((1 - spare_ratio) * size)) for name, size in budgets.items()}
    return simulate(problem.with_budgets(left), schedule, enforce_budgets=False).intervals_us


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
