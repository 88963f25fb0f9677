"""Follows a schedule and names the piece of memory behind every read and write.

An *instance* is one stay of a tensor in a device's memory, from the step that puts it there
to the step that frees it. The validator, the arena planner and the rewriter share this walk,
so that what is checked is what is laid out and what is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Free, Schedule, Step, Transfer, describe


@dataclass
class Instance:
    """One stay of a tensor (and of the updates that take over its bytes) on a device.

    Attributes
    ----------
    start, end
        Positions of the first and last step during which the bytes are taken. State that
        is there when the step begins has start -1; what survives the last step has
        end ``len(steps)``.
    is_home_state
        Whether these bytes are the home of persistent state: they keep one address.
    """

    id: int
    device: str
    tensor: str
    size_bytes: int
    start: int
    end: int
    is_home_state: bool = False


@dataclass
class Access:
    """The instances that one step touches.

    Attributes
    ----------
    reads, writes
        Instance of each base tensor that the step reads or makes.
    freed
        Instance that the step ends; None unless it is a free.
    """

    reads: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    freed: int | None = None


@dataclass(frozen=True)
class Residency:
    """All instances of a schedule and what each of its steps touches."""

    instances: tuple[Instance, ...]
    accesses: tuple[Access, ...]
    final: Mapping[tuple[str, str], int]
    """Instance of each (tensor, device) that is there when the step ends."""

    @cached_property
    def uses(self) -> Sequence[Sequence[int]]:
        """For each instance the steps that read it."""
        uses: list[list[int]] = [[] for _ in self.instances]
        for position, access in enumerate(self.accesses):
            for instance in access.reads.values():
                uses[instance].append(position)
        return uses


def trace_residency(problem: Problem, schedule: Schedule) -> Residency:
    """Replay `schedule` and check that every step finds what it needs.

    Checked here: names, links, that ops run where they can and may, that inputs are there in the
    right version, that no op repeats that must not, that copies do not collide, that frees hit
    something, that every update and output is delivered. Bytes are not counted.

    Raises
    ------
    InvalidScheduleError
        Naming the step and what was missing.
    """
    walk = _Walk(problem)
    for position, step in enumerate(schedule.steps):
        walk.take(position, step)
    walk.finish(len(schedule.steps))
    return Residency(tuple(walk.instances), tuple(walk.accesses), dict(walk.resident))


class _Walk:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.graph = problem.graph
        self.instances: list[Instance] = []
        self.accesses: list[Access] = []
        self.resident: dict[tuple[str, str], int] = {}
        self.overwritten: dict[tuple[str, str], str] = {}
        self.computed: set[str] = set()
        for name, device in problem.home.items():
            self._arrive(name, device, -1)

    def take(self, position: int, step: Step) -> None:
        access = Access()
        self.accesses.append(access)
        try:
            match step:
                case Compute(op, device, variant):
                    self._compute(position, op, device, access)
                    self._check_variant(op, device, variant)
                case Transfer(tensor, src, dst):
                    self._transfer(position, tensor, src, dst, access)
                case Free(tensor, device):
                    self._free(position, tensor, device, access)
        except InvalidScheduleError as error:
            raise InvalidScheduleError(f"step {position} ({describe(step)}): {error}") from None

    def finish(self, position: int) -> None:
        for op in self.graph.ops:
            if op.updates and op.name not in self.computed:
                raise InvalidScheduleError(
                    f"the schedule never computes {op.name}, so {op.updates[0][1]} is not updated"
                )
        for name, device in self.problem.home.items():
            if not self.graph.tensor[name].role.is_persistent:
                continue
            final = self.graph.updated_by[name][1] if name in self.graph.updated_by else name
            if (final, device) not in self.resident:
                raise InvalidScheduleError(
                    f"when the schedule ends, {final} must be on {device}, the home of {name}"
                )
        for name in self.graph.outputs:
            base = self.graph.base[name]
            if not any((base, device) in self.resident for device in self.problem.platform.index):
                raise InvalidScheduleError(
                    f"when the schedule ends, the output {name} must be on some device"
                )
        for instance in self.resident.values():
            self.instances[instance].end = position

    def _compute(self, position: int, name: str, device: str, access: Access) -> None:
        self._device(device)
        if name not in self.graph.op:
            raise InvalidScheduleError(f"the graph has no op {name!r}")
        op = self.graph.op[name]
        if not self.problem.can_run(name, device):
            pinned = self.problem.constraints.pinned.get(name, device)
            reason = "" if pinned == device else f"; it is pinned to {pinned}"
            raise InvalidScheduleError(f"{name} cannot run on {device}{reason}")
        if name in self.computed and not self.problem.may_repeat(name):
            raise InvalidScheduleError(f"{name} ran before and must not be repeated")
        for tensor in self.graph.reads[name]:
            access.reads[tensor] = self._there(tensor, device)
        for output, state in op.updates:
            self._take_over(position, output, state, device)
            access.writes[output] = self.resident[output, device]
        for output in op.outputs:
            if (output, device) not in self.resident:
                self._arrive(output, device, position)
            access.writes[output] = self.resident[output, device]
        self.computed.add(name)

    def _check_variant(self, op: str, device: str, variant: str) -> None:
        kernels = self.problem.costs[op][device].kernels
        if variant not in kernels:
            named = ", ".join(map(repr, kernels))
            raise InvalidScheduleError(f"expected a variant of {op} among {named}, got {variant!r}")

    def _transfer(self, position: int, tensor: str, src: str, dst: str, access: Access) -> None:
        self._device(src)
        self._device(dst)
        if tensor not in self.graph.tensor or self.graph.base[tensor] != tensor:
            raise InvalidScheduleError(f"{tensor!r} is not a tensor with bytes of its own")
        if (src, dst) not in self.problem.platform.link_between:
            raise InvalidScheduleError(f"there is no link from {src} to {dst}")
        access.reads[tensor] = self._there(tensor, src)
        if (tensor, dst) in self.resident:
            raise InvalidScheduleError(f"{tensor} is on {dst} already")
        state = self.graph.update_of.get(tensor)
        if state is not None and self.problem.home[state] == dst:
            self._there(state, dst)
            self._take_over(position, tensor, state, dst)
        elif (tensor, dst) in self.overwritten:
            raise InvalidScheduleError(
                f"{tensor} was overwritten there by {self.overwritten[tensor, dst]}"
            )
        else:
            self._arrive(tensor, dst, position)
        access.writes[tensor] = self.resident[tensor, dst]

    def _free(self, position: int, tensor: str, device: str, access: Access) -> None:
        self._device(device)
        if (tensor, device) not in self.resident:
            raise InvalidScheduleError(f"{tensor} is not on {device}")
        access.freed = self.resident.pop((tensor, device))
        self.instances[access.freed].end = position - 1

    def _there(self, tensor: str, device: str) -> int:
        instance = self.resident.get((tensor, device))
        if instance is not None:
            return instance
        if (tensor, device) in self.overwritten:
            raise InvalidScheduleError(
                f"{tensor} is read after {self.overwritten[tensor, device]} has overwritten it"
                f" on {device}"
            )
        raise InvalidScheduleError(f"{tensor} is not on {device}")

    def _arrive(self, tensor: str, device: str, position: int) -> None:
        instance = Instance(
            id=len(self.instances),
            device=device,
            tensor=tensor,
            size_bytes=self.graph.tensor[tensor].size_bytes,
            start=position,
            end=position,
            is_home_state=self.problem.home.get(tensor) == device
            and self.graph.tensor[tensor].role.is_persistent,
        )
        self.instances.append(instance)
        self.resident[tensor, device] = instance.id

    def _take_over(self, position: int, output: str, state: str, device: str) -> None:
        self.resident[output, device] = self.resident.pop((state, device))
        self.overwritten[state, device] = output

    def _device(self, device: str) -> None:
        if device not in self.problem.platform.index:
            raise InvalidScheduleError(
                f"expected one of the devices {list(self.problem.platform.index)}"
            )
