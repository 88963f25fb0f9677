"""Plan a step again with the times that its calls took while it trained."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.planning.measured_in_place import as_measured
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.plan_again import Replanned, plan_again, plan_in_turn
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.session.plans.plan_of_ranks import plans_of_ranks
from tvm_xengine.session.stages.plan import StepPlan
from tvm_xengine.session.step import Step
from tvm_xengine.solvers.result import Limits, StopReason

_WARM_STEPS = 1
"""The first step of a program fills caches and touches its pages."""
_MEASURED_STEPS = 5
"""Their median leaves out two that something else has slowed down."""
_MOST_ROUNDS = 3
"""A new schedule runs ops elsewhere, whose times are known only after it has run."""
MOST_STEPS = _MOST_ROUNDS * (_WARM_STEPS + _MEASURED_STEPS)
"""After so many steps nothing is measured any more."""
_LEAST_SOLVE_S = 2.0
"""Planning again takes as long as the plan took, and at least so long: greedy schedules come within it."""


@dataclass(frozen=True)
class _Run:
    """When each call of a step began and ended, by its position in the schedule, and how long it took."""

    intervals_us: Mapping[int, tuple[float, float]]
    step_us: float


class Replanning:
    """Times the calls of some steps, plans again with these times, and adopts what is better.

    A schedule that is better by a percent is adopted, and measured in turn. Where it then takes
    longer than another one has taken, that one is adopted again. Where devices and links run side by
    side, which slow each other down, the cheapest plan that runs in turn is also tried, if that promises
    less than was measured. In any case the plan of the step has the costs that were measured. Meanwhile the
    step holds its program twice. Of several processes, each takes the times of its own calls, and the first
    one plans for all.

    Parameters
    ----------
    step
        Is about to train.

    Raises
    ------
    UnsupportedModelError
        If kernels run on a device whose calls return before they have run, such as a GPU.
    """

    def __init__(self, step: Step) -> None:
        if step.executable.launches:
            raise UnsupportedModelError(
                "calls on a GPU return before they have run, so their times in the step are unknown;"
                " leave out replanning"
            )
        self._step, self._first = step, step.plan
        self._is_fastest = True  # of the plans that were measured so far
        self._stack = ExitStack()
        self._marks: Marks | None = None
        self._runs: list[_Run] = []
        self._lengths_us: list[float] = []
        self._fastest = step.plan
        self._in_turn: StepPlan | None = None  # not tried yet
        self._watch()

    @property
    def result(self) -> Replanned | None:
        """What has changed so far; None before the first round has ended."""
        if not self._lengths_us:
            return None
        first, last = self._first.plan, self._step.plan.plan
        return Replanned(
            predicted_us=first.step_us(),
            measured_us=self._lengths_us[0],
            replanned_us=last.step_us(),
            rounds=len(self._lengths_us),
            steps=len(self._lengths_us) * (_WARM_STEPS + _MEASURED_STEPS),
            changed=last.schedule != first.schedule,
        )

    def after_step(self) -> None:
        """Note how long the calls of the step took; after enough steps plan again.

        Raises
        ------
        KeyboardInterrupt
            If planning was interrupted; nothing was adopted then.
        """
        if self._marks is None:
            return
        self._runs.append(_Run(dict(self._marks.intervals_us), self._marks.step_us))
        if len(self._runs) < _WARM_STEPS + _MEASURED_STEPS:
            return
        runs = self._runs[_WARM_STEPS:]
        self.stop()
        length_us = median(run.step_us for run in runs)
        self._is_fastest = length_us <= min(self._lengths_us, default=length_us)
        self._lengths_us.append(length_us)
        found, self._fastest = self._found_by_ranks(runs)
        if found is not None and len(self._lengths_us) < _MOST_ROUNDS:
            self._step.adopt(found)
            self._watch()
        elif self._is_fastest:
            self._step.plan = self._fastest
        else:
            self._step.adopt(self._fastest)

    def stop(self) -> None:
        """Take no more times."""
        self._stack.close()
        self._marks = None

    def _watch(self) -> None:
        self._runs = []
        self._marks = self._stack.enter_context(self._step.executable.marked())

    def _found_by_ranks(self, runs: list[_Run]) -> tuple[StepPlan | None, StepPlan]:
        """Collective: what `_planned_again` returns in the process that plans, and the fastest plan there."""
        found, fastest = plans_of_ranks(
            self._step.lowered, lambda: [self._planned_again(runs), self._fastest]
        )
        assert fastest is not None
        return found, fastest

    def _planned_again(self, runs: list[_Run]) -> StepPlan | None:
        """A plan that promises less than the fastest one has taken; None where there is no such plan."""
        plan = self._step.plan.plan
        limits = Limits(max(_LEAST_SOLVE_S, self._first.plan.result.solve_s))
        options = PlanOptions(objective=plan.result.objective, limits=limits)
        if len(self._lengths_us) == 1 and self._step.executable.is_overlapped:
            in_turn = plan_in_turn(plan, options)
            self._in_turn = None if in_turn is None else _with_plan(self._first, _finished(in_turn))
        candidates = [] if self._in_turn is None else [self._in_turn]
        if self._is_fastest:
            kept, better = plan_again(plan, self._as_measured(runs), options)
            self._fastest = _with_plan(self._step.plan, _finished(kept))
            candidates += [] if better is None else [_with_plan(self._step.plan, better)]
        found = min(candidates, key=_promised_us, default=None)
        if found is self._in_turn:
            self._in_turn = None
        if found is None or _promised_us(found) >= min(self._lengths_us):
            return None
        return found

    def _as_measured(self, runs: list[_Run]) -> Problem:
        plan, lowered = self._step.plan.plan, self._step.plan.planned.lowered
        executable = self._step.executable
        return as_measured(
            plan.problem,
            plan.schedule,
            _times_us(runs, executable.open_ended, in_turn=executable.runs_in_turn),
            lambda *run: lowered.kernel(*run).symbol,
        )


def _finished(plan: Plan) -> Plan:
    """A plan whose search nobody has interrupted."""
    if plan.result.stopped_by is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    return plan


def _promised_us(plan: StepPlan) -> float:
    return plan.plan.step_us()


def _with_plan(step_plan: StepPlan, plan: Plan) -> StepPlan:
    return replace(step_plan, planned=replace(step_plan.planned, plan=plan))


def _times_us(runs: list[_Run], open_ended: Collection[int], *, in_turn: bool) -> dict[int, float]:
    """The median time of each call, but for those whose end is not known.

    In turn, a call lasts until the next one begins, so that what lies between them counts.
    """
    times: dict[int, list[float]] = {}
    for run in runs:
        interval = run.intervals_us
        order = sorted(interval, key=lambda position: interval[position])
        ends = [interval[position][1] for position in order]
        if in_turn:
            ends = [*(interval[position][0] for position in order[1:]), ends[-1]]
        for position, end_us in zip(order, ends, strict=True):
            times.setdefault(position, []).append(end_us - interval[position][0])
    return {
        position: median(found) for position, found in times.items() if position not in open_ended
    }
