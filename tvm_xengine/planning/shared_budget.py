"""One budget per device for several training steps that run in turns.

Each step's state stays on its home device all the time. What a step needs beyond it holds nothing between
steps, so that all steps use the same bytes for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm_xengine.errors import InvalidPlatformError, NoScheduleError
from tvm_xengine.planning.keep_all import budgets_for_ratio
from tvm_xengine.scheduling.arena.apart import state_bytes, transient_bytes
from tvm_xengine.scheduling.arena.plan import QUICK_EFFORT, ArenaPlan, plan_arenas
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, format_bytes, format_exactly
from tvm_xengine.solvers.diagnosis import diagnose_from_home

Sizes = Mapping[str, int]
"""Bytes by device."""


@dataclass(frozen=True)
class SharedMemory:
    """What several steps take of a device together.

    Attributes
    ----------
    state_bytes
        Of each step by name, kept between steps.
    transient_bytes
        What each step needs beyond its state; the largest is allocated, once.
    """

    device: str
    budget_bytes: int
    state_bytes: Mapping[str, int]
    transient_bytes: Mapping[str, int]

    @property
    def shared_bytes(self) -> int:
        """Bytes that the steps use in turns."""
        return max(self.transient_bytes.values())

    @property
    def arena_bytes(self) -> int:
        """Bytes of the device's arena."""
        return sum(self.state_bytes.values()) + self.shared_bytes

    @property
    def apart_bytes(self) -> int:
        """What the same plans take in arenas of their own."""
        return sum(self.state_bytes.values()) + sum(self.transient_bytes.values())


def shared_memory(
    platform: Platform, planned: Mapping[str, tuple[Problem, ArenaPlan]]
) -> tuple[SharedMemory, ...]:
    """What steps, each laid out with its state apart, take of each device together."""
    state = {name: state_bytes(problem) for name, (problem, _) in planned.items()}
    rest = {name: transient_bytes(problem, arenas) for name, (problem, arenas) in planned.items()}
    return tuple(
        SharedMemory(
            device.name,
            device.budget_bytes,
            {name: sizes[device.name] for name, sizes in state.items()},
            {name: sizes[device.name] for name, sizes in rest.items()},
        )
        for device in platform.devices
    )


def shared_ratio(problems: Mapping[str, Problem], ratio: float) -> Sizes:
    """Budgets of the computing devices: the state of all steps, plus the largest rest.

    The rest is `ratio` of what a step's keep-all arena needs beyond its state, as in
    `budgets_for_ratio`.
    """
    alone = {name: budgets_for_ratio(problem, ratio) for name, problem in problems.items()}
    state = {name: sum(state_bytes(problem).values()) for name, problem in problems.items()}
    devices = set.intersection(*(set(budgets) for budgets in alone.values()))
    return {
        device: min(
            UNLIMITED_BYTES,
            sum(state.values()) + max(alone[name][device] - state[name] for name in problems),
        )
        for device in devices
    }


def room_beside_others(problems: Mapping[str, Problem], budgets: Sizes) -> Mapping[str, Sizes]:
    """For each step the budgets that the state of the others leaves.

    Raises
    ------
    NoScheduleError
        If a device has no room for the state of all.
    """
    state = {name: state_bytes(problem) for name, problem in problems.items()}
    for device, budget in budgets.items():
        total = sum(sizes[device] for sizes in state.values())
        if total >= budget:
            each = {name: sizes[device] for name, sizes in state.items()}
            raise NoScheduleError(
                f"{_all(problems)} do not fit together: {device} has {format_bytes(budget)}, and"
                f" their state, which stays there, takes {format_bytes(total)} ({_each(each)});"
                f" raise --budget {device}=BYTES, give the state another `home` in the platform file,"
                " or train them one after the other"
            )
    return {
        name: {
            device: budget
            if budget == UNLIMITED_BYTES
            else budget - sum(s[device] for other, s in state.items() if other != name)
            for device, budget in budgets.items()
        }
        for name in problems
    }


def smallest_transient(problem: Problem) -> Sizes | None:
    """The smallest memory beyond its state in which a step is known to run; None where none is known."""
    limited = [d.name for d in problem.platform.devices if d.budget_bytes < UNLIMITED_BYTES]
    found = diagnose_from_home(problem, limited).working_schedule
    if found is None:
        return None
    arenas = plan_arenas(replace(problem, state_apart=True), found, effort=QUICK_EFFORT)
    return transient_bytes(problem, arenas)


def no_room_message(
    name: str, problems: Mapping[str, Problem], budgets: Sizes, smallest: Mapping[str, Sizes | None]
) -> str:
    """What each step needs on each device, and what to do, where one has no schedule beside the others.

    Parameters
    ----------
    name
        The step without a schedule.
    smallest
        For each step the smallest memory known beyond its state, by device; None where none is known.
    """
    state = {other: state_bytes(problem) for other, problem in problems.items()}
    said = []
    for device, budget in budgets.items():
        if budget == UNLIMITED_BYTES:
            continue
        kept = {other: sizes[device] for other, sizes in state.items()}
        rest = {other: known[device] for other, known in smallest.items() if known is not None}
        sentence = f"{device} has {format_bytes(budget)} for the state of all ({_each(kept)})"
        if len(rest) == len(problems):
            enough = sum(kept.values()) + max(rest.values())
            sentence += (
                f" and, in turns, at least what each needs beyond it (known to work: {_each(rest)}):"
                f" --budget {device}={format_exactly(enough)} is enough"
            )
        said.append(sentence)
    return (
        f"{_all(problems)} do not fit together: no schedule was found for {name} beside the state of"
        f" the others; {'; '.join(said)}. Or take smaller batches, another `home` for the state in the"
        " platform file, or train them one after the other"
    )


def same_platform(platforms: Mapping[str, Platform]) -> Platform:
    """The platform of all steps.

    Raises
    ------
    InvalidPlatformError
        If it is not the same, or its devices are on several ranks.
    """
    (first, platform), *others = platforms.items()
    for name, other in others:
        if _without_times(other) != _without_times(platform):
            raise InvalidPlatformError(
                f"expected one platform and one budget for all, but those of {first} and {name} differ;"
                " lower them for the same platform, and give the budget to plan_together"
            )
    if platform.ranks > 1:
        raise InvalidPlatformError(
            f"the devices are on {platform.ranks} ranks; several models are trained together in one"
            " process only"
        )
    return platform


def _without_times(platform: Platform) -> Platform:
    """What is measured may have been measured twice."""
    links = (
        replace(one, latency_us=None, bandwidth_gb_s=None, engine=None) for one in platform.links
    )
    return replace(platform, links=tuple(links), handover_us=None, start_us=None)


def _all(names: Mapping[str, object]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}"


def _each(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
