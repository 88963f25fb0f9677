"""Make the program of a planned step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.program.step_program import (
    ArenaView,
    Call,
    KernelRun,
    Operand,
    OutsideView,
    StepInterface,
    StepProgram,
    TensorCopy,
)
from tvm_xengine.scheduling.arena.plan import ArenaPlan
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, Transfer
from tvm_xengine.scheduling.value_range import ValueRange


class PreparedKernel(Protocol):
    """The facts of a kernel that a program needs."""

    @property
    def symbol(self) -> str:
        """Name of the compiled function."""

    @property
    def workspace_bytes(self) -> int:
        """Size of its scratch memory."""

    @property
    def library(self) -> object | None:
        """The library call in it; None where all of it is generated."""


class KernelsOfStep(Protocol):
    """A lowered step: its kernels, and the tensors behind its results."""

    @property
    def results(self) -> Mapping[str, str]:
        """For each named result, the tensor that holds it."""

    @property
    def ranges(self) -> Mapping[str, ValueRange]:
        """Allowed values of integer inputs, by name."""

    @property
    def inputs_in_slices(self) -> Mapping[str, tuple[str, ...]]:
        """For each input that the step takes in slices, the names of those."""

    def kernel(self, op: str, device: str, variant: str = "") -> PreparedKernel:
        """The kernel of an op on a device, or that variant of it."""


class ArenaSchedule(Protocol):
    """A plan: a schedule of a problem, with addresses."""

    @property
    def problem(self) -> Problem:
        """What was planned."""

    @property
    def schedule(self) -> Schedule:
        """Accepted by `simulate`."""

    @property
    def arenas(self) -> ArenaPlan:
        """Of the same schedule."""


def make_step_program(
    step: KernelsOfStep,
    plan: ArenaSchedule,
    *,
    fixed: Mapping[str, Operand] | None = None,
    arena_start_bytes: Mapping[str, int] | None = None,
) -> StepProgram:
    """The calls of `plan`, with the place of every operand.

    Parameters
    ----------
    fixed
        Tensors that are not laid out by the plan, by name: what lies outside the arenas, or in
        bytes that another function's plan owns. They are never copied.
    arena_start_bytes
        Where in the memory of its device the plan's arena begins; 0 by default.

    Raises
    ------
    InvalidScheduleError
        If the problem was made from other kernels, or a result is nowhere when the step ends.
    """
    return _Maker(step, plan, fixed or {}, arena_start_bytes or {}).program()


class _Maker:
    def __init__(
        self,
        step: KernelsOfStep,
        plan: ArenaSchedule,
        fixed: Mapping[str, Operand],
        arena_start_bytes: Mapping[str, int],
    ) -> None:
        self.step = step
        self.problem = plan.problem
        self.graph = plan.problem.graph
        self.schedule = plan.schedule
        self.arenas = plan.arenas
        self.fixed = fixed
        self.start = {name: arena_start_bytes.get(name, 0) for name in self.problem.platform.index}

    def program(self) -> StepProgram:
        calls: list[Call] = []
        seen: set[str] = set()
        for position, step in enumerate(self.schedule.steps):
            if isinstance(step, Compute):
                calls.append(self._run(position, step, step.op in seen))
                seen.add(step.op)
            elif isinstance(step, Transfer) and step.tensor not in self.fixed:
                calls.append(self._copy(position, step.tensor))
        return StepProgram(tuple(calls), self._interface())

    def _interface(self) -> StepInterface:
        initial = {
            instance.tensor: instance.id
            for instance in self.arenas.residency.instances
            if instance.start == -1
        }
        given = [tensor for tensor in self.graph.bases if tensor.role.is_resident]
        places = {tensor.name: self._place(initial, tensor.name) for tensor in given}
        return StepInterface(
            inputs={k: v for k, v in places.items() if isinstance(v, ArenaView)},
            outside={k: v for k, v in places.items() if isinstance(v, OutsideView)},
            roles={tensor.name: tensor.role for tensor in given},
            results={name: self._final(tensor) for name, tensor in self.step.results.items()},
            arena_bytes={
                name: self.start[name] + size for name, size in self.arenas.arena_bytes.items()
            },
            updated=tuple(self.graph.updated_by),
            ranges=self.step.ranges,
            slices=self.step.inputs_in_slices,
        )

    def _run(self, position: int, step: Compute, is_repeat: bool) -> KernelRun:
        op = self.graph.op[step.op]
        kernel = self.step.kernel(step.op, step.device, step.variant)
        access = self.arenas.residency.accesses[position]
        return KernelRun(
            step=position,
            op=step.op,
            symbol=kernel.symbol,
            device=step.device,
            inputs=tuple(self._place(access.reads, tensor) for tensor in op.inputs),
            outputs=tuple(self._written(access.writes, t) for t in op.outputs),
            workspace=self._workspace(position, step, kernel.workspace_bytes),
            has_context=kernel.library is not None,
            is_repeat=is_repeat,
            updates_state=bool(op.updates),
        )

    def _workspace(self, position: int, step: Compute, needed_bytes: int) -> ArenaView | None:
        if not needed_bytes:
            return None
        planned_bytes = self.problem.run_cost(step.op, step.device, step.variant).workspace_bytes
        if planned_bytes < needed_bytes:
            raise InvalidScheduleError(
                f"{step.op} needs {needed_bytes} bytes of workspace on {step.device}, but the problem"
                f" says {planned_bytes}; make the problem from the same kernels"
            )
        offset = self.start[step.device] + self.arenas.workspace_offset_bytes[position]
        return ArenaView(step.device, offset, (needed_bytes,), "uint8")

    def _copy(self, position: int, tensor: str) -> TensorCopy:
        access = self.arenas.residency.accesses[position]
        src, dst = (self._instance(at[tensor], tensor) for at in (access.reads, access.writes))
        return TensorCopy(position, tensor, src, dst)

    def _written(self, instances: Mapping[str, int], tensor: str) -> ArenaView:
        place = self._place(instances, tensor)
        if not isinstance(place, ArenaView):
            raise InvalidScheduleError(f"{tensor} would be written outside the arenas")
        return place

    def _place(self, instances: Mapping[str, int], tensor: str) -> Operand:
        """Where `tensor`, perhaps a view, is while its base is one of `instances`."""
        base = self.graph.base[tensor]
        base = self.graph.update_of.get(base, base) if base not in self.fixed else base
        if base not in self.fixed:
            return self._instance(instances[self.graph.base[tensor]], tensor)
        info = self.graph.tensor[tensor]
        return replace(self.fixed[base], shape=info.shape, dtype=info.dtype)

    def _final(self, tensor: str) -> Operand:
        base = self.graph.base[tensor]
        final = self.arenas.residency.final
        held = [final[base, d] for d in self.problem.platform.index if (base, d) in final]
        state = self.graph.update_of.get(base, base)
        if not held and base not in self.fixed and state not in self.fixed:
            raise InvalidScheduleError(f"the result {tensor} is nowhere when the schedule ends")
        return self._place({base: held[0]} if held else {}, tensor)

    def _instance(self, instance_id: int, tensor: str) -> ArenaView:
        device = self.arenas.residency.instances[instance_id].device
        info = self.graph.tensor[tensor]
        offset = self.start[device] + self.arenas.offset_bytes[instance_id]
        return ArenaView(device, offset, info.shape, info.dtype)
