"""What lies in the memory of a device while a step of the schedule runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tvm_xengine.explain.categories import WORKSPACE, categories
from tvm_xengine.explain.names import Names
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.residency import Instance
from tvm_xengine.scheduling.schedule import Compute, describe
from tvm_xengine.scheduling.simulate import live_bytes

_MOST_TIME_POINTS = 3
"""Time points of a device that are told; more of them look alike."""
_DIP_RATIO = 0.95
"""Two peaks are told apart when less than this share of the lower one is live in between."""
_MOST_HELD = 8
"""Tensors that are named at a time point, the largest first."""


@dataclass(frozen=True)
class Held:
    """A tensor, or a workspace, in memory."""

    name: str
    label: str
    layer: str
    category: str
    size_bytes: int


@dataclass(frozen=True)
class TimePoint:
    """A step during which much memory of a device is taken.

    Attributes
    ----------
    step
        Position in the schedule.
    during
        What the step does.
    place
        Layer and source line of that; empty where unknown.
    room_bytes
        What is left of the budget.
    binds
        Whether some tensor that is dropped then, or is on another device, and is larger than what
        is left, would not fit as well.
    category_bytes, layer_bytes
        Live bytes by category and by layer; both sum to `live_bytes`.
    largest
        The largest tensors.
    """

    device: str
    step: int
    during: str
    place: str
    live_bytes: int
    room_bytes: int
    binds: bool
    category_bytes: Mapping[str, int]
    layer_bytes: Mapping[str, int]
    largest: tuple[Held, ...]


@dataclass(frozen=True)
class Memory:
    """The memory of all devices over the steps of a plan."""

    plan: Plan
    names: Names

    @cached_property
    def category(self) -> Mapping[str, str]:
        """The category of each tensor."""
        return categories(self.plan.problem.graph)

    @cached_property
    def live(self) -> Mapping[str, tuple[int, ...]]:
        """For each device the bytes live during each step, as the validator counts them."""
        plan = self.plan
        return live_bytes(plan.problem, plan.schedule, plan.arenas.residency)

    def held(self, device: str, step: int) -> tuple[Held, ...]:
        """What is in the memory of a device during a step, the largest first."""
        found = [
            self._held(instance)
            for instance in self.plan.arenas.residency.instances
            if instance.device == device and _is_live(instance, step)
        ]
        running = self.plan.schedule.steps[step]
        if isinstance(running, Compute) and running.device == device:
            cost = self.plan.problem.run_cost(running.op, device, running.variant)
            size = cost.workspace_bytes
            if size:
                layer = self.names.layer[running.op]
                label = f"workspace of {running.op}"
                found.append(Held(running.op, label, layer, WORKSPACE, size))
        return tuple(sorted(found, key=lambda held: (-held.size_bytes, held.name)))

    def time_points(self, device: str) -> tuple[TimePoint, ...]:
        """The highest peaks of a device, the highest first, each apart from the others."""
        live = self.live[device]
        points: list[int] = []
        for step in sorted(range(len(live)), key=lambda s: (-live[s], s)):
            if len(points) == _MOST_TIME_POINTS or not live[step]:
                break
            if all(_are_apart(live, step, other) for other in points):
                points.append(step)
        return tuple(self._time_point(device, step) for step in points)

    def _time_point(self, device: str, step: int) -> TimePoint:
        held = self.held(device, step)
        by_category: Counter[str] = Counter()
        by_layer: Counter[str] = Counter()
        for one in held:
            by_category[one.category] += one.size_bytes
            by_layer[one.layer] += one.size_bytes
        running = self.plan.schedule.steps[step]
        live = self.live[device][step]
        room = self.plan.problem.platform.device(device).budget_bytes - live
        return TimePoint(
            device,
            step,
            describe(running),
            self.names.place(running.op if isinstance(running, Compute) else running.tensor),
            live,
            room,
            self._largest_absent_bytes(device, step) > room,
            dict(by_category.most_common()),
            dict(by_layer.most_common()),
            held[:_MOST_HELD],
        )

    def _largest_absent_bytes(self, device: str, step: int) -> int:
        """The largest tensor that is not on a device during a step but elsewhere, or used later."""
        there = {
            i.tensor
            for i in self.plan.arenas.residency.instances
            if i.device == device and _is_live(i, step)
        }
        begun: dict[str, int] = {}
        for instance in self.plan.arenas.residency.instances:
            if instance.start <= step:
                begun.setdefault(instance.tensor, instance.size_bytes)
        coming = {i.tensor for i in self.plan.arenas.residency.instances if i.end > step}
        absent = (size for name, size in begun.items() if name in coming - there)
        return max(absent, default=0)

    def _held(self, instance: Instance) -> Held:
        name = instance.tensor
        return Held(
            name,
            self.names.label(name),
            self.names.layer[name],
            self.category[name],
            instance.size_bytes,
        )


def _is_live(instance: Instance, step: int) -> bool:
    first = max(instance.start, 0)
    return first <= step <= max(instance.end, first)


def _are_apart(live: tuple[int, ...], one: int, other: int) -> bool:
    first, last = sorted((one, other))
    return min(live[first : last + 1]) < _DIP_RATIO * min(live[one], live[other])
