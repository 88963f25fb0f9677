"""A compiled training step with its arenas: loads state, steps, returns results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import tvm
from numpy.typing import ArrayLike, NDArray
from tvm import relax

from tvm_xengine.errors import InvalidInputError, InvalidStateError, StorageError
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.context import KernelContext, while_kernels_run
from tvm_xengine.program.step_program import ArenaView, StepProgram
from tvm_xengine.program.streams import overwritten_state, split_into_streams, stream_of
from tvm_xengine.runtime.events import Events, can_overlap, event_functions
from tvm_xengine.runtime.file_memory import FAILED, file_functions
from tvm_xengine.runtime.inputs import checked_inputs
from tvm_xengine.runtime.marks import Marks, mark_function
from tvm_xengine.runtime.storage import (
    POISON,
    Arena,
    StoredTensor,
    allocate_arenas,
    copy_tensor,
)
from tvm_xengine.runtime.stream_threads import StreamThreads, check_cores
from tvm_xengine.runtime.vm_function import VmFunction, emit_stream, emit_vm_function
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform

_STEP = "step"
"""What the step is called in the virtual machine."""


class StepExecutable:
    """One training step that lives in one arena per device and allocates nothing else.

    Parameters
    ----------
    program
        The calls of the step; all its tensors lie in arenas.
    libraries
        The compiled kernels that it calls.
    platform
        The devices of the arenas.
    library_calls
        By the symbols of the kernels that call a library.
    guard_bytes
        Additional bytes behind every arena, to detect stray writes.
    overlap
        Whether devices and links run side by side, each in a thread of its own. Without effect where
        there is one stream only, a device is no processor, or the system is not Linux.

    Attributes
    ----------
    program
        As given.
    tensors
        Inputs and state, in their places in the arenas.
    overwritten
        State whose bytes a step writes over: what it updates, and what it moves away meanwhile.
    """

    def __init__(
        self,
        program: StepProgram,
        libraries: Sequence[tvm.runtime.Module],
        platform: Platform,
        *,
        library_calls: Mapping[str, LibraryCall] | None = None,
        guard_bytes: int = 0,
        overlap: bool = False,
    ) -> None:
        self.interface = program.interface
        self.arenas: Mapping[str, Arena] = allocate_arenas(
            platform, self.interface.arena_bytes, guard_bytes=guard_bytes
        )
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
        self._files = {name: a for name, a in self.arenas.items() if a.file is not None}
        self._library_calls = library_calls or {}
        self._contexts: list[KernelContext] = []
        self.is_overlapped = (
            overlap
            and len(set(map(stream_of, program.calls))) > 1
            and can_overlap()
            and not any(map(_is_gpu, self.arenas.values()))
        )
        self.program, self._platform, self._libraries = program, platform, libraries
        self._run = self._side_by_side() if self.is_overlapped else self._in_turn()
        self._while_running = while_kernels_run(self._contexts)
        # A launch on a GPU returns before its kernel has run.
        self._wait = [arena.device.sync for arena in self.arenas.values() if _is_gpu(arena)]

    @property
    def launches(self) -> bool:
        """Whether some calls return before they have run, as on a GPU, so that marks time nothing."""
        return bool(self._wait)

    @contextmanager
    def marked(self) -> Iterator[Marks]:
        """Take the time of each call of the steps that run inside; the last one's times stay.

        The arenas are the same; a program with two more calls for each one runs in them.
        """
        usual, marks = self._run, Marks(self.program.calls)
        self._run = self._side_by_side(marks) if self.is_overlapped else self._in_turn(marks)
        try:
            yield marks
        finally:
            self._run = usual

    def _in_turn(self, marks: Marks | None = None) -> Callable[[], object]:
        function = emit_vm_function(self.program, _STEP, files=self._files, marks=marks)
        linked = link({_STEP: function.function}, self._libraries, self._helpers(marks))
        return self._callable(function, linked, _STEP, *_times(marks))

    def _side_by_side(self, marks: Marks | None = None) -> Callable[[], object]:
        streams, platform = split_into_streams(self.program), self._platform
        functions = {
            f"{_STEP}_{k}": emit_stream(calls, f"{_STEP}_{k}", self._files, marks)
            for k, calls in enumerate(streams.calls.values())
        }
        events = Events(streams.events)
        linked = link(
            {name: function.function for name, function in functions.items()},
            self._libraries,
            {**event_functions(streams.events), **self._helpers(marks)},
        )
        run = [
            self._callable(function, linked, name, events.tensor, *_times(marks))
            for name, function in functions.items()
        ]
        check_cores(platform)
        # A link has a thread, which copies; it may do so on any core.
        cores = [
            platform.device(stream[0]).cores if len(stream) == 1 else () for stream in streams.calls
        ]
        return StreamThreads(run, events, cores).run

    def _helpers(self, marks: Marks | None) -> Mapping[tvm.ir.GlobalVar, tvm.tirx.PrimFunc]:
        """The functions for files and for marks, where there are any."""
        of_files = file_functions() if self._files else {}
        return {**of_files, **({} if marks is None else mark_function(marks))}

    def _callable(
        self, function: VmFunction, linked: tvm.runtime.Module, name: str, *further: object
    ) -> Callable[[], object]:
        """The function in a machine of its own, with its arguments and its own contexts."""
        machine = relax.VirtualMachine(linked, tvm.cpu())
        contexts = [KernelContext(self._library_calls[symbol]) for symbol in function.contexts]
        self._contexts += contexts
        views = [self.arenas[view.device].view(view) for view in function.views]
        arguments = [*views, *(context.tensor for context in contexts), *further]
        return partial(machine[name], *arguments)

    def names(self, *roles: Role) -> tuple[str, ...]:
        """The inputs that have one of `roles`."""
        return tuple(name for name, role in self.interface.roles.items() if role in roles)

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
        checked = checked_inputs(self.interface, arrays)
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
        """Overwrite everything but the state, so that reads of stale bytes show in results."""
        state = self.read_state()
        for arena in self.arenas.values():
            arena.poison(byte)
        self.write(state)

    def agreed(self, found: str | None) -> str | None:
        """What this process has found, or another one that runs a part of the step."""
        return found

    @property
    def measured_peak_bytes(self) -> Mapping[str, int]:
        """For each device, the bytes that its allocator gave to the step."""
        return {name: arena.allocated_bytes for name, arena in self.arenas.items()}

    def run(self) -> None:
        """Run the step on what the arenas hold; write the batch before each run.

        The bytes of batch and hyper inputs are used again once they have been read.

        Raises
        ------
        InvalidStateError
            If an earlier run has failed, and the state was not written since.
        StorageError
            If a file of a device could not be read or written.
        """
        self.recover()
        try:
            with self._while_running, _naming_storage():
                self._run()
                for wait in self._wait:
                    wait()
        except BaseException:
            self._lost = dict.fromkeys(self.overwritten)
            raise

    def step(self, batch: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.generic]]:
        """Write a batch (and hyper parameters), run the step, and return its results.

        Raises
        ------
        InvalidInputError
            If an input is missing or superfluous, or has another shape, type or range; nothing
            was written then.
        """
        self.write(self.check(batch))
        self.run()
        return self.read_results()

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


@contextmanager
def _naming_storage() -> Iterator[None]:
    """Raise `StorageError` where code that moves bytes from or to a file has failed."""
    try:
        yield
    except RuntimeError as error:
        if FAILED not in str(error):
            raise
        raise StorageError(str(error).splitlines()[-1]) from error


def _times(marks: Marks | None) -> tuple[tvm.runtime.Tensor, ...]:
    return () if marks is None else (marks.tensor,)


def _is_gpu(arena: Arena) -> bool:
    return int(arena.device.dlpack_device_type()) != int(tvm.cpu().dlpack_device_type())


def link(
    functions: Mapping[str, relax.Function],
    libraries: Sequence[tvm.runtime.Module],
    others: Mapping[tvm.ir.GlobalVar, tvm.tirx.PrimFunc],
) -> tvm.runtime.Module:
    """Virtual-machine code of straight-line functions, with the kernels imported."""
    mine = {tvm.ir.GlobalVar(name): function for name, function in functions.items()}
    module = tvm.IRModule({**mine, **others})
    executable = relax.build(
        module.with_attr("external_mods", list(libraries)),
        tvm.target.Target({"kind": "llvm"}),
        # All shapes are numbers, so nothing has to be lowered or checked again in every step.
        relax_pipeline=relax.transform.AttachGlobalSymbol(),
    )
    # The module itself: handing over the executable would link all its kernels once more.
    return executable.mod
