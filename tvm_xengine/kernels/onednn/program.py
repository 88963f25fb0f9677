"""The sequence of primitives that compute a kernel, and the places of their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm_xengine.kernels.library.assembly import SCRATCH
from tvm_xengine.kernels.library.stages import Stage
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc, PrimitiveDesc
from tvm_xengine.kernels.onednn.enumerators import ARG_DST, ARG_SCRATCHPAD, ARG_SRC
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.scheduling.sizes import round_up

_ALIGNMENT_BYTES = 64
"""A cache line, and the widest vector."""


@dataclass(frozen=True)
class Placed:
    """A tensor in a layout, in the memory of a parameter.

    Attributes
    ----------
    parameter
        Number among inputs and output, or `SCRATCH`.
    offset_bytes
        Where it begins there.
    """

    parameter: int
    offset_bytes: int
    desc: MemoryDesc


@dataclass(frozen=True)
class Execution:
    """One primitive and its tensors, by ``DNNL_ARG_*``.

    Attributes
    ----------
    is_copy
        Whether it only lays a tensor out otherwise.
    """

    desc: PrimitiveDesc
    arguments: Mapping[int, Placed]
    is_copy: bool = False


@dataclass(frozen=True)
class Program:
    """Primitives in the order they run.

    Attributes
    ----------
    scratch_bytes
        Temporary memory, for tensors in other layouts and for the primitives themselves.
    """

    executions: tuple[Execution, ...]
    scratch_bytes: int

    @property
    def placed(self) -> tuple[Placed, ...]:
        """Every tensor argument in the order of the executions."""
        return tuple(p for execution in self.executions for p in execution.arguments.values())

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The primitives, for who asks what the library runs."""
        return tuple(
            Stage(
                implementation=execution.desc.implementation,
                is_copy=execution.is_copy,
                tensors_bytes=sum(t.desc.size_bytes for t in execution.arguments.values()),
            )
            for execution in self.executions
        )


class ProgramBuilder:
    """Adds primitives, and copies between layouts where a primitive has chosen another one."""

    def __init__(self, library: OnednnLibrary) -> None:
        self._library = library
        self._executions: list[Execution] = []
        self._scratch_bytes = 0

    def read(self, parameter: int, desc: MemoryDesc, wanted: MemoryDesc) -> Placed:
        """An input that lies as `desc` in a parameter, as a primitive wants it."""
        given = Placed(parameter, 0, desc)
        if desc == wanted:
            return given
        copy = self.scratch(wanted)
        self.copy(given, copy)
        return copy

    def scratch(self, desc: MemoryDesc) -> Placed:
        """Temporary memory for a tensor."""
        placed = Placed(SCRATCH, self._scratch_bytes, desc)
        self._scratch_bytes += round_up(desc.size_bytes, _ALIGNMENT_BYTES)
        return placed

    def part(self, parameter: int, offset_bytes: int, desc: MemoryDesc) -> Placed:
        """A part of an input that a primitive reads as it lies there."""
        return Placed(parameter, offset_bytes, desc)

    def compute(
        self,
        primitive: PrimitiveDesc,
        arguments: Mapping[int, Placed],
        result: tuple[int, int, MemoryDesc, MemoryDesc],
    ) -> None:
        """Run a primitive.

        Parameters
        ----------
        result
            The ``DNNL_ARG_*`` of its result, the parameter it belongs into, how it must lie there,
            and how the primitive makes it.
        """
        arg, parameter, desc, made = result
        final = Placed(parameter, 0, desc)
        target = final if desc == made else self.scratch(made)
        self.run(primitive, {**arguments, arg: target})
        if target is not final:
            self.copy(target, final)

    def run(self, primitive: PrimitiveDesc, arguments: Mapping[int, Placed]) -> None:
        """Run a primitive whose tensors, results among them, lie as it wants them."""
        self._executions.append(Execution(primitive, arguments))

    def copy(self, source: Placed, target: Placed) -> None:
        """Copy a tensor into another layout, or to another element type."""
        primitive = self._library.describe_reorder(source.desc, target.desc)
        arguments = {ARG_SRC: source, ARG_DST: target}
        self._executions.append(Execution(primitive, arguments, is_copy=True))

    def program(self) -> Program:
        """What was added."""
        own_bytes = max((e.desc.scratchpad_desc.size_bytes for e in self._executions), default=0)
        start = self._scratch_bytes
        executions = []
        for execution in self._executions:
            desc = execution.desc.scratchpad_desc
            arguments = dict(execution.arguments)
            if desc.size_bytes:
                arguments[ARG_SCRATCHPAD] = Placed(SCRATCH, start, desc)
            executions.append(replace(execution, arguments=arguments))
        return Program(tuple(executions), start + round_up(own_bytes, _ALIGNMENT_BYTES))
