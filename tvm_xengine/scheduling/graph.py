"""The training step as a graph of kernel calls and tensors, in plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from tvm_xengine.errors import InvalidProblemError

MAX_BYTES = 2**53 - 1
"""The largest whole number below which float64, and JSON, hold every one exactly."""


class Role(Enum):
    """The role of a tensor in the training step."""

    BATCH = "batch"  # given for every step
    HYPER = "hyper"  # a setting given for every step, such as the learning rate
    PARAMETER = "parameter"
    OPTIMIZER_STATE = "optimizer_state"
    STATISTIC = "statistic"  # running statistics of norms, step counters
    CONSTANT = "constant"
    INTERMEDIATE = "intermediate"  # made by an op of the step

    @property
    def is_resident(self) -> bool:
        """Whether the tensor is on its home device when the step begins."""
        return self is not Role.INTERMEDIATE

    @property
    def is_persistent(self) -> bool:
        """Whether the tensor must be on its home device when the step ends."""
        return self not in (Role.INTERMEDIATE, Role.BATCH, Role.HYPER)


@dataclass(frozen=True)
class Tensor:
    """A result of an op or an input of the step.

    Attributes
    ----------
    size_bytes
        Bytes that it occupies, rounded up to the allocator's alignment. A view has the
        size of what it shows and occupies nothing of its own.
    alias_of
        For a view: the tensor whose bytes it shares.
    shape, dtype
        For people and cost models; the scheduler does not use them.
    """

    name: str
    size_bytes: int
    role: Role = Role.INTERMEDIATE
    alias_of: str | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidProblemError("a tensor needs a non-empty name")
        if not 0 <= self.size_bytes <= MAX_BYTES:
            raise InvalidProblemError(
                f"tensor {self.name}: size_bytes must be in 0..2^53-1, got {self.size_bytes}"
            )


@dataclass(frozen=True)
class Op:
    """One kernel call.

    Attributes
    ----------
    kernel
        Identity of what runs: ops with the same kernel cost the same on a device.
    inputs
        Tensors it reads (views allowed).
    outputs
        Tensors it makes, each kept or dropped on its own.
    updates
        Pairs (output, state): the output is written over the bytes of that state tensor,
        which is gone afterwards on the device where the op runs.
    recomputable
        False where a second run could change a result. Always False for ops with updates.
    """

    name: str
    kernel: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    updates: tuple[tuple[str, str], ...] = ()
    recomputable: bool = True

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidProblemError("an op needs a non-empty name")
        if not self.outputs:
            raise InvalidProblemError(
                f"op {self.name} makes no tensor; every op makes at least one"
            )
        if len(set(self.outputs)) != len(self.outputs):
            raise InvalidProblemError(f"op {self.name} names an output twice: {self.outputs}")
        for output, state in self.updates:
            if output not in self.outputs or state not in self.inputs:
                raise InvalidProblemError(
                    f"op {self.name}: the update {output} over {state} must pair one of its outputs"
                    f" {self.outputs} with one of its inputs {self.inputs}"
                )
        if self.updates and self.recomputable:
            raise InvalidProblemError(
                f"op {self.name} updates {[state for _, state in self.updates]} in place, so it must"
                " have recomputable=False: a second run would update twice"
            )


@dataclass(frozen=True)
class OpGraph:
    """Ops in a topological order, their tensors, and what the step must deliver.

    Attributes
    ----------
    tensors
        Every tensor, views included.
    ops
        In an order in which they can run; solvers that fix the order of first computations
        take this one.
    outputs
        Tensors that must exist on some device when the step ends (the loss, metrics).
        Updates need not be listed: every update must happen.
    """

    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_unique("tensor", [tensor.name for tensor in self.tensors])
        _check_unique("op", [op.name for op in self.ops])
        if not self.ops:
            raise InvalidProblemError("the graph is empty; expected at least one op")
        self._check_views()
        self._check_order()
        self._check_updates()
        for name in self.outputs:
            if name not in self.tensor:
                raise InvalidProblemError(f"the output {name!r} is not a tensor of the graph")

    @cached_property
    def tensor(self) -> Mapping[str, Tensor]:
        """Each tensor by its name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def op(self) -> Mapping[str, Op]:
        """Each op by its name."""
        return {op.name: op for op in self.ops}

    @cached_property
    def op_index(self) -> Mapping[str, int]:
        """Position of each op."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def base(self) -> Mapping[str, str]:
        """For each tensor the one whose bytes it occupies (itself unless it is a view)."""
        base: dict[str, str] = {}
        for tensor in self.tensors:
            name = tensor.name
            while (parent := self.tensor[name].alias_of) is not None:
                name = parent
            base[tensor.name] = name
        return base

    @cached_property
    def bases(self) -> tuple[Tensor, ...]:
        """The tensors that occupy bytes of their own: all but the views."""
        return tuple(tensor for tensor in self.tensors if tensor.alias_of is None)

    @cached_property
    def reads(self) -> Mapping[str, tuple[str, ...]]:
        """For each op the distinct base tensors it reads, in order."""
        return {
            op.name: tuple(dict.fromkeys(self.base[name] for name in op.inputs)) for op in self.ops
        }

    @cached_property
    def producer(self) -> Mapping[str, str]:
        """For each base tensor that an op makes, that op's name."""
        return {output: op.name for op in self.ops for output in op.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """For each base tensor the ops that read it or a view of it, in order."""
        consumers: dict[str, list[str]] = {tensor.name: [] for tensor in self.bases}
        for op in self.ops:
            for name in self.reads[op.name]:
                consumers[name].append(op.name)
        return {name: tuple(ops) for name, ops in consumers.items()}

    @cached_property
    def updated_by(self) -> Mapping[str, tuple[str, str]]:
        """For each state tensor that is updated: (op, the output that replaces it)."""
        return {state: (op.name, output) for op in self.ops for output, state in op.updates}

    @cached_property
    def update_of(self) -> Mapping[str, str]:
        """For each update result, the state tensor whose bytes it takes over."""
        return {output: state for op in self.ops for output, state in op.updates}

    @cached_property
    def repetitions(self) -> frozenset[str]:
        """Ops that compute once more what another op of the graph computes from the same tensors."""
        first: dict[object, Op] = {}
        same: dict[str, str] = {}
        found = set()
        for op in self.ops:
            read = tuple(
                (same.get(self.base[name], self.base[name]), self.tensor[name].shape)
                for name in op.inputs
            )
            other = first.setdefault((op.kernel, read), op)
            if other is not op and op.inputs:
                found.add(op.name)
                same |= dict(zip(op.outputs, other.outputs, strict=True))
        return frozenset(found)

    def _check_views(self) -> None:
        for tensor in self.tensors:
            seen, name = {tensor.name}, tensor.alias_of
            while name is not None:
                if name not in self.tensor:
                    raise InvalidProblemError(
                        f"tensor {tensor.name} is a view of {name!r}, which is not in the graph"
                    )
                if name in seen:
                    raise InvalidProblemError(
                        f"the views {sorted(seen)} alias each other in a cycle"
                    )
                seen.add(name)
                name = self.tensor[name].alias_of

    def _check_order(self) -> None:
        made: dict[str, str] = {}
        for op in self.ops:
            for name in op.inputs:
                if name not in self.tensor:
                    raise InvalidProblemError(f"op {op.name} reads {name!r}, not in the graph")
                base = self.tensor[self.base[name]]
                if not base.role.is_resident and base.name not in made:
                    raise InvalidProblemError(
                        f"op {op.name} reads {name} before any op makes it; list the ops in"
                        " topological order (a cyclic graph has none)"
                    )
            for name in op.outputs:
                if name not in self.tensor:
                    raise InvalidProblemError(f"op {op.name} makes {name!r}, not in the graph")
                tensor = self.tensor[name]
                if tensor.role.is_resident or tensor.alias_of is not None:
                    raise InvalidProblemError(
                        f"op {op.name} makes {name}, which is resident state or a view"
                    )
                if name in made:
                    raise InvalidProblemError(f"both {made[name]} and {op.name} make {name}")
                made[name] = op.name
        for tensor in self.bases:
            if not tensor.role.is_resident and tensor.name not in made:
                raise InvalidProblemError(f"no op makes tensor {tensor.name}")

    def _check_updates(self) -> None:
        updater: dict[str, str] = {}
        for op in self.ops:
            for name in self.reads[op.name]:
                if name in updater:
                    raise InvalidProblemError(
                        f"op {op.name} reads {name} after {updater[name]} has overwritten it; order"
                        " every reader of the old value before the update"
                    )
            for output, state in op.updates:
                base = self.tensor[state]
                if base.alias_of is not None or not base.role.is_persistent:
                    raise InvalidProblemError(
                        f"op {op.name} updates {state}, which is not persistent state"
                    )
                if self.tensor[output].size_bytes != base.size_bytes:
                    raise InvalidProblemError(
                        f"op {op.name} writes {output} ({self.tensor[output].size_bytes} bytes) over"
                        f" {state} ({base.size_bytes} bytes); sizes must agree"
                    )
                updater[state] = op.name


def _check_unique(kind: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        double = sorted({name for name in names if names.count(name) > 1})
        raise InvalidProblemError(f"{kind} names must be unique, found twice: {double}")
