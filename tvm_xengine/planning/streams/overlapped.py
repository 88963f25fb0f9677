"""Plans of overlapped steps: schedules are chosen by how they run in a layout, not by what they promise."""

from __future__ import annotations

import math
from operator import itemgetter

from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.question import RETRY_SHARE, Question
from tvm_xengine.planning.streams.in_time import in_streams
from tvm_xengine.planning.tighten import with_smaller_budgets
from tvm_xengine.scheduling.arena.plan import quick_effort
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule

_MOST_IN_STREAMS = 8
"""Schedules of an answer that are tried as they run: each takes up to half a second."""
_MOST_FRUITLESS = 4
"""So many further answers in a row without a faster plan are the last. None takes longer than the first."""
_WORTHWHILE_WAITS_RATIO = 0.005
"""Of a step: shorter waits are not worth more room for them."""
_FIRST_SPARE_RATIO, _LEAST_SPARE_RATIO, _MOST_SPARE_RATIO = 0.04, 0.005, 0.3
"""Shares of the budgets that later answers leave to the gaps of layouts: the first, where streams wait; the
least, below which none is left; and the largest, with which few networks have schedules."""


def faster_in_streams(question: Question, plan: Plan) -> Plan:
    """The plan, or one whose streams wait less for each other's memory.

    Until layouts are known a schedule promises the makespan without such waits, which is a bound for it.
    Schedules on the way are laid out, too; and as long as there is time, others are looked for under
    smaller budgets, which leave room for the gaps of a layout.
    """
    tried = {plan.schedule}
    plan = _fastest_passed(question, plan, tried)
    share_s = question.clock.elapsed_s
    promised_us = min(question.passed.values(), default=math.inf)
    spare_ratio = _FIRST_SPARE_RATIO * _promises(promised_us, plan)
    attempt = fruitless = 0
    while fruitless < _MOST_FRUITLESS and question.is_open(plan):
        attempt += 1
        found = question.again(
            _leaving(question.problem, spare_ratio),
            min(RETRY_SHARE, share_s / question.clock.left_s),
            attempt,
            plan.schedule,
            "local-search",
        )
        faster = _fastest_passed(question, plan, tried)
        fruitless = 0 if faster is not plan else fruitless + 1
        plan = faster
        if found.value is not None and _promises(found.value, plan):
            spare_ratio = min(_MOST_SPARE_RATIO, max(2 * spare_ratio, _LEAST_SPARE_RATIO))
        else:
            spare_ratio = spare_ratio / 2 if spare_ratio > _LEAST_SPARE_RATIO else 0.0
    return plan


def _promises(value_us: float, plan: Plan) -> bool:
    """Whether a makespan without waits for addresses is worth looking for a layout with fewer of them."""
    return value_us < (1 - _WORTHWHILE_WAITS_RATIO) * plan.step_us()


def _leaving(problem: Problem, spare_ratio: float) -> Problem:
    """The problem under budgets that are smaller by a share."""
    devices = problem.platform.devices
    spare = {each.name: int(spare_ratio * each.budget_bytes) for each in devices}
    return with_smaller_budgets(problem, spare) or problem


def _fastest_passed(question: Question, plan: Plan, tried: set[Schedule]) -> Plan:
    """The plan, or the fastest as it runs of the schedules on the way that were not tried yet."""
    fresh = [(value, one) for one, value in question.passed.items() if one not in tried]
    # The first is what the search began from, and most unlike its last.
    first, rest = fresh[:1], sorted(fresh[1:], key=itemgetter(0))
    for value, schedule in first + rest[:: math.ceil(len(rest) / _MOST_IN_STREAMS) or 1]:
        if question.clock.is_over or question.stop.is_set():
            break
        if value < plan.step_us():
            effort = quick_effort(len(schedule.steps))
            other = question.plan_passed(schedule, plan.result, effort)
            question.laid_out_in_streams(schedule)
            streams = in_streams(other, lambda: question.clock.is_over, effort=effort)
            if not streams.arenas.excess_bytes(question.problem.platform):
                plan = min(plan, streams, key=Plan.step_us)
    tried |= {schedule for _, schedule in fresh}
    return plan
