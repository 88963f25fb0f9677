"""A planned step as calls on fixed memory, the input of every emitter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.sizes import tensor_bytes
from tvm_xengine.scheduling.value_range import ValueRange


@dataclass(frozen=True)
class ArenaView:
    """A tensor at a fixed place in a device's arena."""

    device: str
    offset_bytes: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor, without padding."""
        return tensor_bytes(self.shape, self.dtype)

    @property
    def end_bytes(self) -> int:
        """The offset behind the tensor."""
        return self.offset_bytes + self.size_bytes

    def overlaps(self, other: ArenaView) -> bool:
        """Whether the two have a byte in common."""
        return (
            self.device == other.device
            and self.offset_bytes < other.end_bytes
            and other.offset_bytes < self.end_bytes
        )


class Outside(Enum):
    """The place of a tensor outside the arenas."""

    CALLER = "caller"  # an argument of the function, read in place
    CONSTANT = "constant"  # data of the program, e.g. in flash
    SETTING = "setting"  # a value kept with the program's context, such as the learning rate


@dataclass(frozen=True)
class OutsideView:
    """A tensor outside the arenas, read in place.

    Attributes
    ----------
    name
        What the emitted program calls it.
    """

    kind: Outside
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor, without padding."""
        return tensor_bytes(self.shape, self.dtype)


Operand = ArenaView | OutsideView


@dataclass(frozen=True)
class KernelRun:
    """One run of a kernel.

    Attributes
    ----------
    step
        Position in the schedule.
    symbol
        Name of the compiled kernel.
    workspace
        Scratch memory; None where the kernel needs none.
    has_context
        Whether the kernel calls a library and takes its context as the last argument.
    is_repeat
        Whether the op ran before.
    updates_state
        Whether an output is the new value of a state tensor.
    """

    step: int
    op: str
    symbol: str
    device: str
    inputs: tuple[Operand, ...]
    outputs: tuple[ArenaView, ...]
    workspace: ArenaView | None
    has_context: bool
    is_repeat: bool
    updates_state: bool

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Inputs, outputs and workspace: the arguments of the kernel."""
        workspace = () if self.workspace is None else (self.workspace,)
        return (*self.inputs, *self.outputs, *workspace)


@dataclass(frozen=True)
class TensorCopy:
    """A copy between two arenas.

    Attributes
    ----------
    step
        Position in the schedule.
    """

    step: int
    tensor: str
    src: ArenaView
    dst: ArenaView


Call = KernelRun | TensorCopy


@dataclass(frozen=True)
class GivenInput:
    """What is given for an input."""

    shape: tuple[int, ...]
    dtype: str
    role: Role


@dataclass(frozen=True)
class StepInterface:
    """The places of a step's inputs and results.

    Attributes
    ----------
    inputs
        Each batch, setting and state tensor in an arena; state keeps its place from step to step.
    outside
        Those that are in no arena.
    roles
        Of all inputs.
    results
        Place of each result when the step has ended.
    arena_bytes
        Size of each device's arena.
    updated
        State tensors that the step overwrites.
    ranges
        Allowed values of integer inputs, by name.
    slices
        For each input that is given as a whole and lies in slices of its first dimension, the inputs that
        these are.
    """

    inputs: Mapping[str, ArenaView]
    outside: Mapping[str, OutsideView]
    roles: Mapping[str, Role]
    results: Mapping[str, Operand]
    arena_bytes: Mapping[str, int]
    updated: tuple[str, ...] = ()
    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    slices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def given(self) -> Mapping[str, GivenInput]:
        """What is given for each input in an arena, slices as the whole that they are of."""
        hidden = {name for names in self.slices.values() for name in names}
        wholes = {name: self._whole(names) for name, names in self.slices.items()}
        return wholes | {
            name: GivenInput(view.shape, view.dtype, self.roles[name])
            for name, view in self.inputs.items()
            if name not in hidden
        }

    def _whole(self, names: tuple[str, ...]) -> GivenInput:
        views = [self.inputs[name] for name in names]
        shape = (sum(view.shape[0] for view in views), *views[0].shape[1:])
        return GivenInput(shape, views[0].dtype, self.roles[names[0]])


@dataclass(frozen=True)
class StepProgram:
    """The calls of a plan in order, with the place of every operand."""

    calls: tuple[Call, ...]
    interface: StepInterface
