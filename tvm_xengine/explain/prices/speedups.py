"""Which op or link to speed up first: the planned schedule with that one made faster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_xengine.explain.names import Names
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.schedule import Compute, Free, Transfer
from tvm_xengine.scheduling.simulate import step_us
from tvm_xengine.solvers.result import Objective

FASTER_RATIO = 0.1
"""How much of the time, and of the energy, of a run is taken away: what tuning may win."""
_MOST_TRIED = 12
"""Those that take longest are tried; others cannot gain as much under the sum of times."""
_MOST_TOLD = 5
"""Of them are told: what comes after gains less than a glance is worth."""


@dataclass(frozen=True)
class Speedup:
    """What it gains to make an op or a link faster by a tenth, the schedule as it is.

    Attributes
    ----------
    what
        The op and its device, or the link.
    place
        Layer and source line of the op; empty where unknown.
    busy_us
        Time of all its runs or copies.
    gain
        By how much the objective falls, in its unit, with `FASTER_RATIO` less time and energy.
    """

    what: str
    place: str
    runs: int
    busy_us: float
    gain: float


def speedups(plan: Plan, names: Names) -> tuple[Speedup, ...]:
    """The ops and links that gain most by being faster, the best first."""
    busy: dict[Compute | tuple[str, str], float] = defaultdict(float)
    runs: Counter[Compute | tuple[str, str]] = Counter()
    for step in plan.schedule.steps:
        match step:
            case Free():
                continue
            case Compute():
                key: Compute | tuple[str, str] = step
            case Transfer(_, src, dst):
                key = (src, dst)
        busy[key] += step_us(plan.problem, step)
        runs[key] += 1
    found = []
    for key, busy_us in sorted(busy.items(), key=lambda item: -item[1])[:_MOST_TRIED]:
        place = names.place(key.op) if isinstance(key, Compute) else ""
        gain = _gain(plan, key, busy_us)
        found.append(Speedup(_named(key), place, runs[key], busy_us, gain))
    return tuple(_largest(found))


def _gain(plan: Plan, key: Compute | tuple[str, str], busy_us: float) -> float:
    objective = plan.result.objective
    if objective is Objective.COST:  # a sum of times
        return FASTER_RATIO * busy_us
    faster = plan.simulated(_faster(plan.problem, key))
    return objective.of(plan.simulation) - objective.of(faster)


def _faster(problem: Problem, key: Compute | tuple[str, str]) -> Problem:
    left = 1 - FASTER_RATIO
    if isinstance(key, Compute):
        cost = problem.costs[key.op][key.device]
        own = {**problem.costs[key.op], key.device: cost.changed(_cheaper)}
        return replace(problem, costs={**problem.costs, key.op: own})
    links = tuple(
        replace(
            link,
            latency_us=(link.latency_us or 0.0) * left,
            bandwidth_gb_s=(link.bandwidth_gb_s or 1.0) / left,
            energy_nj_per_byte=link.energy_nj_per_byte * left,
            energy_uj_per_copy=link.energy_uj_per_copy * left,
        )
        if (link.src, link.dst) == key
        else link
        for link in problem.platform.links
    )
    return replace(problem, platform=replace(problem.platform, links=links))


def _cheaper(cost: OpCost) -> OpCost:
    left = 1 - FASTER_RATIO
    compute_us, energy_uj = left * cost.compute_us, left * cost.energy_uj
    return replace(cost, compute_us=compute_us, energy_uj=energy_uj, interval_us=None)


def _named(key: Compute | tuple[str, str]) -> str:
    if isinstance(key, Compute):
        return f"{key.op} on {key.device}"
    return f"link {key[0]} -> {key[1]}"


def _largest(found: Sequence[Speedup]) -> list[Speedup]:
    return sorted(found, key=lambda one: (-one.gain, -one.busy_us))[:_MOST_TOLD]
