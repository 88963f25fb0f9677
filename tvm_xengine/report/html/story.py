"""The numbers behind the pictures: when each tensor is where, step by step and over time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from tvm_xengine.explain.categories import CATEGORIES, GRADIENTS, WORKSPACE
from tvm_xengine.explain.memory import Memory
from tvm_xengine.planning.plan import Plan
from tvm_xengine.report.html.svg import WIDTH
from tvm_xengine.scheduling.schedule import Compute, Free, Step, Transfer, describe, scratch_bytes
from tvm_xengine.scheduling.simulate import step_us
from tvm_xengine.scheduling.sizes import format_type

Intervals = Mapping[int, tuple[float, float]]
"""Begin and end in microseconds, by the position of a step in the schedule."""
COPY = "copy"
"""Kind of a step that copies."""
AGAIN = "again"
"""Kind of a step that runs an op which ran before."""


@dataclass(frozen=True)
class Block:
    """A tensor or a workspace in an arena, from its first to its last step.

    Attributes
    ----------
    first, last
        Among the steps that are no frees.
    offset_bytes
        Its address.
    kind
        Type and shape; empty where unknown.
    """

    device: str
    tensor: str
    label: str
    category: str
    size_bytes: int
    offset_bytes: int
    first: int
    last: int
    kind: str = ""


@dataclass(frozen=True)
class Story:
    """A plan as it unfolds; frees take no time, so only the other steps are counted."""

    memory: Memory

    @property
    def plan(self) -> Plan:
        """What is shown."""
        return self.memory.plan

    @cached_property
    def positions(self) -> Sequence[int]:
        """Places in the schedule of the steps that are no frees."""
        steps = self.plan.schedule.steps
        return [k for k, step in enumerate(steps) if not isinstance(step, Free)]

    @cached_property
    def steps(self) -> Sequence[Step]:
        """Computations and copies in order."""
        return [self.plan.schedule.steps[k] for k in self.positions]

    @cached_property
    def durations_us(self) -> Sequence[float]:
        """Time of each of them."""
        return [step_us(self.plan.problem, step) for step in self.steps]

    def edges(self, by: str) -> Sequence[float]:
        """Where each step begins, and the last one ends, in the pictures, by ``step`` or ``time``."""
        widths = [1.0] * len(self.steps) if by == "step" else list(self.durations_us)
        total = sum(widths) or 1.0
        return [WIDTH * at / total for at in accumulate(widths, initial=0.0)]

    @cached_property
    def intervals_us(self) -> Sequence[tuple[float, float]]:
        """When each step runs: side by side where that is the objective, else one after the other."""
        if self.plan.is_overlapped:
            every = self.plan.simulation.intervals_us
            return [every[k] for k in self.positions]
        return list(pairwise(accumulate(self.durations_us, initial=0.0)))

    @cached_property
    def lanes(self) -> Sequence[str]:
        """The device or link of each step, in words."""
        return [
            f"{step.src} to {step.dst}" if isinstance(step, Transfer) else step.device
            for step in self.steps
        ]

    @cached_property
    def kinds(self) -> Sequence[str]:
        """For each step the category of its first result; `COPY` or `AGAIN` for others."""
        seen: set[str] = set()
        found = []
        for step in self.steps:
            if not isinstance(step, Compute):
                found.append(COPY)
                continue
            outputs = self.plan.problem.graph.op[step.op].outputs
            found.append(AGAIN if step.op in seen else self.memory.category[outputs[0]])
            seen.add(step.op)
        return found

    @cached_property
    def first_backward(self) -> int | None:
        """The step after the loss; None where gradients are made before it, as in slices of a batch."""
        graph = self.plan.problem.graph
        last = graph.producer.get(graph.base[graph.outputs[0]]) if graph.outputs else None
        for k, (step, kind) in enumerate(zip(self.steps, self.kinds, strict=True)):
            if kind == GRADIENTS:
                return None
            if isinstance(step, Compute) and step.op == last:
                return k + 1
        return None

    @cached_property
    def blocks(self) -> Sequence[Block]:
        """Everything that takes bytes during some step."""
        return [*self._stays(), *self._workspaces()]

    def live_bytes(self, device: str) -> Mapping[str, Sequence[int]]:
        """Live bytes of a device during each step, by category; those without any are left out."""
        change = {category: [0] * (len(self.steps) + 1) for category in CATEGORIES}
        for block in self.blocks:
            if block.device == device:
                change[block.category][block.first] += block.size_bytes
                change[block.category][block.last + 1] -= block.size_bytes
        found = {name: list(accumulate(series[:-1])) for name, series in change.items()}
        return {name: series for name, series in found.items() if any(series)}

    def described(self, step: int) -> str:
        """A step in words, with its place in the schedule, frees counted."""
        return f"step {self.positions[step]} ({describe(self.steps[step])})"

    def _stays(self) -> list[Block]:
        arenas, found = self.plan.arenas, []
        for instance in arenas.residency.instances:
            first = bisect_left(self.positions, max(instance.start, 0))
            last = bisect_right(self.positions, instance.end) - 1
            if first > last or not instance.size_bytes:
                continue
            tensor = self.plan.problem.graph.tensor[instance.tensor]
            found.append(
                Block(
                    instance.device,
                    instance.tensor,
                    self.memory.names.label(instance.tensor),
                    self.memory.category[instance.tensor],
                    instance.size_bytes,
                    arenas.offset_bytes[instance.id],
                    first,
                    last,
                    format_type(tensor.shape, tensor.dtype),
                )
            )
        return found

    def _workspaces(self) -> list[Block]:
        found = []
        for k, step in enumerate(self.steps):
            if not isinstance(step, Compute):
                continue
            size = scratch_bytes(self.plan.problem, step)
            if size:
                offset = self.plan.arenas.workspace_offset_bytes[self.positions[k]]
                label = f"workspace of {step.op}"
                block = Block(step.device, step.op, label, WORKSPACE, size, offset, k, k)
                found.append(block)
        return found
