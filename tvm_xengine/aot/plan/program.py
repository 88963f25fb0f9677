"""From a plan to the calls of a straight-line function."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_xengine.aot.plan.places import (
    Call,
    CopyCall,
    Field,
    InRegion,
    KernelCall,
    Place,
    Program,
)
from tvm_xengine.compile.lower import LoweredStep
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.planning.planner import Plan
from tvm_xengine.relax_ir.types import tensor_bytes
from tvm_xengine.scheduling.graph import Role, Tensor
from tvm_xengine.scheduling.schedule import Compute, Free, Transfer


def make_program(
    step: LoweredStep,
    plan: Plan,
    fixed: Mapping[str, Place],
    result_names: Mapping[str, str],
    arena_start_bytes: Mapping[str, int],
) -> Program:
    """The calls that `plan` stands for, with every operand's place.

    Parameters
    ----------
    fixed
        Place of each tensor that lies outside the planned arenas.
    result_names
        The tensor behind each result.
    arena_start_bytes
        Where in its region each planned arena begins.
    """
    maker = _Maker(step, plan, fixed, arena_start_bytes)
    calls = maker.calls()
    graph = plan.problem.graph
    return Program(
        inputs=tuple(_field(tensor) for tensor in graph.bases if tensor.role is Role.BATCH),
        results={
            name: (_field(graph.tensor[tensor], name), maker.final(tensor))
            for name, tensor in result_names.items()
        },
        calls=calls,
        region_bytes={
            name: arena_start_bytes[name] + size for name, size in plan.arenas.arena_bytes.items()
        },
    )


def _field(tensor: Tensor, name: str = "") -> Field:
    size_bytes = tensor_bytes(tensor.shape, tensor.dtype)
    return Field(name or tensor.name, tensor.dtype, tensor.shape, size_bytes)


class _Maker:
    def __init__(
        self,
        step: LoweredStep,
        plan: Plan,
        fixed: Mapping[str, Place],
        arena_start_bytes: Mapping[str, int],
    ) -> None:
        self.step = step
        self.plan = plan
        self.graph = plan.problem.graph
        self.fixed = fixed
        self.start = arena_start_bytes

    def calls(self) -> tuple[Call, ...]:
        made: list[Call] = []
        seen: set[str] = set()
        for position, step in enumerate(self.plan.schedule.steps):
            match step:
                case Compute(op, region):
                    made.append(self._kernel(position, op, region, op in seen))
                    seen.add(op)
                case Transfer(tensor):
                    if tensor not in self.fixed:
                        made.append(self._copy(position, tensor))
                case Free():
                    pass
        return tuple(made)

    def final(self, tensor: str) -> Place:
        """Where `tensor` is when the function ends."""
        base = self.graph.base[tensor]
        if base in self.fixed:
            return self.fixed[base]
        final = self.plan.arenas.residency.final
        for device in self.plan.problem.platform.index:
            if (base, device) in final:
                return self._instance(final[base, device])
        raise InvalidScheduleError(f"the result {tensor} is nowhere when the schedule ends")

    def _kernel(self, position: int, name: str, region: str, is_repeat: bool) -> KernelCall:
        op = self.graph.op[name]
        kernel = self.step.kernels[self.step.extraction.kernels[name], region]
        access = self.plan.arenas.residency.accesses[position]
        places = [self._read(access.reads, tensor) for tensor in op.inputs]
        places += [self._instance(access.writes[tensor]) for tensor in op.outputs]
        if kernel.workspace_bytes:
            offset = self.plan.arenas.workspace_offset_bytes[position]
            places.append(InRegion(region, self.start[region] + offset))
        return KernelCall(name, kernel.symbol, region, tuple(places), is_repeat, bool(op.updates))

    def _read(self, reads: Mapping[str, int], tensor: str) -> Place:
        base = self.graph.base[tensor]
        return self.fixed[base] if base in self.fixed else self._instance(reads[base])

    def _copy(self, position: int, tensor: str) -> CopyCall:
        access = self.plan.arenas.residency.accesses[position]
        info = self.graph.tensor[tensor]
        return CopyCall(
            tensor,
            self._instance(access.reads[tensor]),
            self._instance(access.writes[tensor]),
            tensor_bytes(info.shape, info.dtype),
        )

    def _instance(self, instance_id: int) -> InRegion:
        instance = self.plan.arenas.residency.instances[instance_id]
        offset = self.plan.arenas.offset_bytes[instance_id]
        return InRegion(instance.device, self.start[instance.device] + offset)
