"""Steps of a schedule that can be left out: nothing needs them, or nothing gains by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import (
    Free,
    Schedule,
    Step,
    accesses,
    needed_at_end,
    with_frees,
)
from tvm_xengine.scheduling.simulate import simulate

_LEAST_STEPS_REPLAYED, _MOST_STEPS_REPLAYED = 10_000, 100_000
"""By all trials, each of which replays the schedule at some 10 us for a step, on a thousand ops at 50 us. The
fewest take up to half a second, whatever time is left, so that a small schedule does not depend on that."""


def dead_steps(
    problem: Problem, steps: Sequence[Step], survivors: Mapping[str, str]
) -> Iterator[int]:
    """Places of the computations and copies whose results nothing reads or delivers.

    Parameters
    ----------
    steps
        Without frees.
    survivors
        Where each output is when the step ends.
    """
    needed = needed_at_end(problem, steps, survivors)
    for place in reversed(range(len(steps))):
        reads, writes, taken_over = accesses(problem, steps[place])
        if not taken_over and needed.isdisjoint(writes):
            yield place
            continue
        needed.difference_update(writes)
        needed.update(reads, taken_over)


def without_dead_steps(problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule without the computations and copies whose results nothing reads or delivers.

    Results are delivered on the devices where they are in `schedule`; frees are the earliest.
    """
    ordered = [step for step in schedule.steps if not isinstance(step, Free)]
    return _alive(problem, ordered, survivors_of(problem, schedule))


def without_idle_steps(
    problem: Problem, schedule: Schedule, may_go_on: Callable[[], bool] = lambda: True
) -> Schedule:
    """A valid schedule without the steps that save neither memory which is needed nor time.

    These are dead steps, and copies and recomputations of tensors that could as well have stayed where
    they were: within the budgets, with a makespan that is no longer. A search for the least makespan
    leaves them in beside what takes longer.

    Parameters
    ----------
    may_go_on
        Asked before each trial but the first ones.
    """
    survivors = survivors_of(problem, schedule)
    schedule = without_dead_steps(problem, schedule)
    makespan_us = simulate(problem, schedule).makespan_us
    ordered = [step for step in schedule.steps if not isinstance(step, Free)]
    first = _first_there(problem, ordered)
    replayed, position = 0, len(ordered)
    while position and replayed < _MOST_STEPS_REPLAYED:
        if replayed >= _LEAST_STEPS_REPLAYED and not may_go_on():
            break
        position -= 1
        _, writes, taken_over = accesses(problem, ordered[position])
        if taken_over or any(first[place] == position for place in writes):
            continue  # it makes something that was not there before
        replayed += len(ordered)
        shorter = _alive(problem, ordered[:position] + ordered[position + 1 :], survivors)
        try:
            found = simulate(problem, shorter)
        except InvalidScheduleError:
            continue
        if found.makespan_us > makespan_us:
            continue
        schedule, makespan_us = shorter, found.makespan_us
        behind = len(ordered) - position - 1
        ordered = [step for step in schedule.steps if not isinstance(step, Free)]
        position, first = len(ordered) - behind, _first_there(problem, ordered)
    return schedule


def survivors_of(problem: Problem, schedule: Schedule) -> Mapping[str, str]:
    """Where each output is when the step ends."""
    outputs = {problem.graph.base[name] for name in problem.graph.outputs}
    final = trace_residency(problem, schedule).final
    return {name: device for name, device in final if name in outputs}


def _alive(problem: Problem, ordered: Sequence[Step], survivors: Mapping[str, str]) -> Schedule:
    """The schedule of those computations and copies that something needs."""
    dead = {*dead_steps(problem, ordered, survivors)}
    alive = [step for place, step in enumerate(ordered) if place not in dead]
    return with_frees(problem, alive, survivors=survivors)


def _first_there(problem: Problem, ordered: Sequence[Step]) -> Mapping[tuple[str, str], int]:
    """The place in `ordered` that first makes a tensor on a device; -1 where it is there before."""
    first = dict.fromkeys(problem.home.items(), -1)
    for position, step in enumerate(ordered):
        for place in accesses(problem, step)[1]:
            first.setdefault(place, position)
    return first
