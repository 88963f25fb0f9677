"""A plan's schedule with some steps replaced, and what that costs, as the validator says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.arena.plan import QUICK_EFFORT, ArenaPlan, plan_arenas
from tvm_xengine.scheduling.needless_steps import dead_steps
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import (
    Free,
    Schedule,
    Step,
    describe,
    with_frees,
)
from tvm_xengine.scheduling.simulate import live_bytes, simulate

LAYOUT = "its address layout"
"""Where live bytes fit a budget, and no addresses were found that do."""


@dataclass(frozen=True)
class Excess:
    """By how much a schedule breaks the budget of a device, at the worst step.

    Attributes
    ----------
    during
        What that step does, or `LAYOUT`.
    """

    device: str
    excess_bytes: int
    during: str


class Way(Enum):
    """What an alternative does with a tensor or an op."""

    KEEP = "keep"
    RECOMPUTE = "recompute"
    MOVE = "move"
    PLACE = "place"  # run an op on another device


@dataclass(frozen=True)
class Alternative:
    """Another way to treat a tensor or an op, with all else as planned.

    Attributes
    ----------
    way, what
        The kind of change, and the change in words.
    difference
        How much more the objective is than the plan's, in its unit; negative where it is less.
    excess
        Every device whose budget the changed schedule breaks: with its live bytes, or, where these
        fit and the objective is better than the plan's, with its address layout.
    peak_bytes
        Of each device.
    schedule
        The changed schedule, from which all figures follow.
    arenas
        Its address layout, where that was looked for.
    """

    way: Way
    what: str
    difference: float
    excess: tuple[Excess, ...]
    peak_bytes: Mapping[str, int]
    schedule: Schedule = field(repr=False)
    arenas: ArenaPlan | None = field(repr=False, default=None)

    @property
    def fits(self) -> bool:
        """Whether it is known to break no budget."""
        return not self.excess

    @property
    def rank(self) -> tuple[int, float]:
        """The smaller the better: what fits by its objective, the rest by its excess."""
        excess = sum(one.excess_bytes for one in self.excess)
        return excess, self.difference


@dataclass(frozen=True)
class PlannedSteps:
    """The steps of a plan without frees, which are derived again for every change."""

    plan: Plan

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Computations and transfers in program order."""
        return tuple(s for s in self.plan.schedule.steps if not isinstance(s, Free))

    @cached_property
    def position(self) -> Mapping[int, int]:
        """For each computation or transfer its place in `steps`, by its place in the schedule."""
        every = [k for k, s in enumerate(self.plan.schedule.steps) if not isinstance(s, Free)]
        return {k: place for place, k in enumerate(every)}

    @cached_property
    def survivors(self) -> Mapping[str, str]:
        """Where each result is when the planned step ends."""
        graph = self.plan.problem.graph
        results = {graph.base[name] for name in graph.outputs}
        final = self.plan.arenas.residency.final
        return {name: device for name, device in final if name in results}

    def changed(
        self, way: Way, what: str, pieces: Iterable[tuple[int, Sequence[Step]]]
    ) -> Alternative | None:
        """The plan with some steps replaced; None where a rule of the problem forbids that.

        Steps that only served what was replaced are left out.

        Parameters
        ----------
        pieces
            For places in `steps`, what stands there instead.
        """
        replaced = dict(pieces)
        rows = [
            (step, place if place not in replaced else None)
            for place, own in enumerate(self.steps)
            for step in replaced.get(place, (own,))
        ]
        idle = [k for k, (_, place) in enumerate(rows) if place not in self._idle]
        unneeded = set(dead_steps(self.plan.problem, [s for s, _ in rows], self.survivors))
        unneeded &= set(idle)
        steps = [s for k, (s, _) in enumerate(rows) if k not in unneeded]
        if Counter(steps) == Counter(self.steps):
            return None  # the same work in another order
        return self._evaluated(way, what, steps)

    def without_idle(self) -> Alternative | None:
        """The plan without the steps that serve nothing; None where each serves something."""
        if not self._idle:
            return None
        steps = [step for place, step in enumerate(self.steps) if place not in self._idle]
        return self._evaluated(Way.KEEP, "leave out what serves nothing", steps)

    @cached_property
    def _idle(self) -> frozenset[int]:
        """Steps that serve nothing in the plan itself; they stay in every alternative."""
        return frozenset(dead_steps(self.plan.problem, self.steps, self.survivors))

    def _evaluated(self, way: Way, what: str, steps: Sequence[Step]) -> Alternative | None:
        problem, objective = self.plan.problem, self.plan.result.objective
        try:
            schedule = with_frees(problem, steps, survivors=self.survivors)
            simulation = simulate(problem, schedule, enforce_budgets=False)
        except InvalidScheduleError:
            return None
        difference = objective.of(simulation) - objective.of(self.plan.simulation)
        excess = excesses(problem, schedule, simulation.peak_bytes)
        arenas = None
        if difference < 0 and not excess:
            arenas = plan_arenas(problem, schedule, effort=QUICK_EFFORT)
            excess = _excesses_of_layout(problem, arenas)
        peak_bytes = dict(simulation.peak_bytes)
        return Alternative(way, what, difference, excess, peak_bytes, schedule, arenas)


def excesses(
    problem: Problem, schedule: Schedule, peak_bytes: Mapping[str, int]
) -> tuple[Excess, ...]:
    """Where and by how much a valid schedule breaks budgets."""
    broken = [d for d in problem.platform.devices if peak_bytes[d.name] > d.budget_bytes]
    if not broken:
        return ()
    live = live_bytes(problem, schedule, trace_residency(problem, schedule))
    return tuple(
        Excess(
            device.name,
            peak_bytes[device.name] - device.budget_bytes,
            describe(schedule.steps[live[device.name].index(peak_bytes[device.name])]),
        )
        for device in broken
    )


def _excesses_of_layout(problem: Problem, arenas: ArenaPlan) -> tuple[Excess, ...]:
    return tuple(
        Excess(name, excess_bytes, LAYOUT)
        for name, excess_bytes in arenas.excess_bytes(problem.platform).items()
    )
