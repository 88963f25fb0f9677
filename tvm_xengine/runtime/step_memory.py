"""The tensors of a training step in the arenas of its devices: written, read, kept when a step fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import tvm
from numpy.typing import ArrayLike, NDArray

from tvm_xengine.errors import InvalidInputError, InvalidStateError, StorageError
from tvm_xengine.program.step_program import ArenaView, StepProgram
from tvm_xengine.program.streams import overwritten_state
from tvm_xengine.runtime.inputs import checked_inputs, in_slices
from tvm_xengine.runtime.shared_arenas import ArenaPart
from tvm_xengine.runtime.storage import (
    POISON,
    Arena,
    StoredTensor,
    allocate_arenas,
    copy_tensor,
)
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform


class StepMemory:
    """One arena per device, and the inputs, state and results of a step in them.

    Parameters
    ----------
    program
        The calls of the step; all its tensors lie in arenas.
    platform
        The devices of the arenas.
    guard_bytes
        Additional bytes behind every arena, to detect stray writes.
    arenas
        What the step sees of arenas that it shares with others; None allocates its own.

    Attributes
    ----------
    tensors
        Inputs and state, in their places in the arenas.
    overwritten
        State whose bytes a step writes over: what it updates, and what it moves away meanwhile.
    shares_arenas
        Whether other steps use the same memory in turns, so that nothing but state stays in it.
    """

    def __init__(
        self,
        program: StepProgram,
        platform: Platform,
        *,
        guard_bytes: int = 0,
        arenas: Mapping[str, ArenaPart] | None = None,
    ) -> None:
        self.interface = program.interface
        self.arenas: Mapping[str, Arena | ArenaPart] = (
            self._allocated(platform, guard_bytes) if arenas is None else arenas
        )
        self.shares_arenas = arenas is not None
        self.tensors: Mapping[str, StoredTensor] = {
            name: self.arenas[view.device].view(view)
            for name, view in self.interface.inputs.items()
        }
        self._results = {
            name: self.arenas[view.device].view(view)
            for name, view in self.interface.results.items()
            if isinstance(view, ArenaView)
        }
        self.overwritten = overwritten_state(program)
        # State whose bytes a step that failed has destroyed, and where it is kept, if anywhere.
        self._lost: dict[str, StoredTensor | None] = {}

    def _allocated(self, platform: Platform, guard_bytes: int) -> Mapping[str, Arena]:
        """Arenas of this step alone."""
        return allocate_arenas(platform, self.interface.arena_bytes, guard_bytes=guard_bytes)

    def names(self, *roles: Role) -> tuple[str, ...]:
        """The inputs that have one of `roles`, as they are given."""
        whole = {piece: name for name, pieces in self.interface.slices.items() for piece in pieces}
        found = (name for name, role in self.interface.roles.items() if role in roles)
        return tuple(dict.fromkeys(whole.get(name, name) for name in found))

    def write(self, arrays: Mapping[str, ArrayLike]) -> None:
        """Copy inputs (batch, hyper, state) into their place in the arenas, as numbers or arrays.

        Raises
        ------
        InvalidInputError
            If a name is not an input, or an array has another shape, type or range; nothing was
            written then.
        StorageError
            If a file of a device could not be written; the state that was to be written is lost.
        """
        self._write(in_slices(self.interface, checked_inputs(self.interface, arrays)))

    def _write(self, checked: Mapping[str, NDArray[np.generic]]) -> None:
        roles = self.interface.roles
        self._lost |= {name: None for name in checked if roles[name].is_persistent}
        for name, values in checked.items():
            self.tensors[name].copyfrom(values)
            self._lost.pop(name, None)

    def check(self, batch: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.generic]]:
        """All inputs of a step that are not state, in the types that the step reads.

        Raises
        ------
        InvalidInputError
            If one is missing, is state, or has another shape, type or range.
        """
        needed = self.names(Role.BATCH, Role.HYPER)
        if others := [name for name in batch if name not in needed]:
            raise InvalidInputError(
                f"expected the inputs {list(needed)}, got {others[0]!r} besides; `write` sets state"
            )
        return checked_inputs(self.interface, batch, required=needed)

    def read_state(self, names: Iterable[str] | None = None) -> dict[str, NDArray[np.generic]]:
        """A copy of every persistent tensor, or of those in `names`.

        Raises
        ------
        InvalidStateError
            If one was destroyed by a step that failed, and is kept nowhere.
        """
        if names is None:
            names = self.names(*(role for role in Role if role.is_persistent))
        return {name: self._source(name).numpy() for name in names}

    def _source(self, name: str) -> StoredTensor:
        """Where the value of a state tensor is."""
        source = self._lost.get(name, self.tensors[name])
        if source is None:
            raise InvalidStateError(
                f"the state is lost: a step that wrote over {name} failed; load a checkpoint or a"
                " state dict, and let `guard` keep the state of the last step from now on"
            )
        return source

    def undo(self, kept: Mapping[str, StoredTensor]) -> None:
        """After a step that failed, go back to what was in the arenas before it.

        Parameters
        ----------
        kept
            Copies of the `overwritten` state; they must stay until `recover` has succeeded.
        """
        self._lost = dict(kept)
        self.recover()

    def recover(self) -> None:
        """Write state back that a failed step destroyed; nothing is done if there is none.

        Raises
        ------
        InvalidStateError
            If it is kept nowhere.
        StorageError
            If a file of a device cannot be written. `read_state` still returns what is kept.
        """
        for name in list(self._lost):
            try:
                copy_tensor(self._source(name), self.tensors[name])
            except StorageError as error:
                raise StorageError(
                    f"{error}; the state of the last completed step is kept outside that file:"
                    " save it, or go on once the file can be written again"
                ) from error
            del self._lost[name]

    def poison(self, byte: int = POISON) -> None:
        """Overwrite everything but state, so that reads of stale bytes show in results."""
        state = self.read_state()
        for arena in self.arenas.values():
            arena.poison(byte)
        self.write(state)

    @property
    def measured_peak_bytes(self) -> Mapping[str, int]:
        """For each device, the bytes that its allocator gave to the step."""
        return {name: arena.allocated_bytes for name, arena in self.arenas.items()}

    def read_results(self, names: Iterable[str] | None = None) -> dict[str, NDArray[np.generic]]:
        """A copy of every result of the last step, or of those in `names`."""
        names = self._results if names is None else names
        return {name: self._results[name].numpy() for name in names}

    @property
    def state_views(self) -> dict[str, tvm.runtime.Tensor]:
        """Every persistent tensor in its place in the arenas, which it keeps alive.

        It has its value between steps; during a step, or while it is moved, its bytes may change.
        """
        self.recover()
        return {
            name: self.tensors[name]
            for name, role in self.interface.roles.items()
            if role.is_persistent
        }

    @property
    def result_views(self) -> dict[str, tvm.runtime.Tensor]:
        """Every result in its place in the arenas, valid until the next write or step."""
        return dict(self._results)
