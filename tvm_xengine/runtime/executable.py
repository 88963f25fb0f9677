"""A compiled training step with its arenas: loads state, steps, returns results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import tvm
from numpy.typing import ArrayLike, NDArray
from tvm import relax

from tvm_xengine.errors import InvalidInputError
from tvm_xengine.kernels.library.context import KernelContext, while_kernels_run
from tvm_xengine.program.step_program import ArenaView, StepProgram
from tvm_xengine.runtime.inputs import checked_inputs
from tvm_xengine.runtime.storage import POISON, Arena, allocate_arenas
from tvm_xengine.runtime.vm_function import VmFunction, emit_vm_function
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
    contexts
        By the symbols of the kernels that call a library.
    guard_bytes
        Additional bytes behind every arena, to detect stray writes.
    """

    def __init__(
        self,
        program: StepProgram,
        libraries: Sequence[tvm.runtime.Module],
        platform: Platform,
        *,
        contexts: Mapping[str, KernelContext] | None = None,
        guard_bytes: int = 0,
    ) -> None:
        emitted = emit_vm_function(program, _STEP)
        self.interface = program.interface
        self.arenas: Mapping[str, Arena] = allocate_arenas(
            platform, self.interface.arena_bytes, guard_bytes=guard_bytes
        )
        self._tensors = {
            name: self.arenas[view.device].view(view)
            for name, view in self.interface.inputs.items()
        }
        self._results = {
            name: self.arenas[view.device].view(view)
            for name, view in self.interface.results.items()
            if isinstance(view, ArenaView)
        }
        # The module itself: handing over the executable would link all its kernels once more.
        self._vm = relax.VirtualMachine(_link(emitted, libraries).mod, tvm.cpu())
        self._contexts = [(contexts or {})[symbol] for symbol in emitted.contexts]
        arguments = [self.arenas[view.device].view(view) for view in emitted.views]
        arguments += [context.tensor for context in self._contexts]
        self._while_running = while_kernels_run(self._contexts)
        self._run = partial(self._vm[_STEP], *arguments)
        # A launch on a GPU returns before its kernel has run.
        self._wait = [arena.device.sync for arena in self.arenas.values() if _is_gpu(arena)]

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
        """
        for name, values in checked_inputs(self.interface, arrays).items():
            self._tensors[name].copyfrom(values)

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
        """A copy of every persistent tensor, or of those in `names`."""
        if names is None:
            names = self.names(*(role for role in Role if role.is_persistent))
        return {name: self._tensors[name].numpy() for name in names}

    def poison(self, byte: int = POISON) -> None:
        """Overwrite everything but the state, so that reads of stale bytes show in results."""
        state = self.read_state()
        for arena in self.arenas.values():
            arena.poison(byte)
        self.write(state)

    @property
    def measured_peak_bytes(self) -> Mapping[str, int]:
        """For each device, the bytes that its allocator gave to the step."""
        return {name: arena.allocated_bytes for name, arena in self.arenas.items()}

    def run(self) -> None:
        """Run the step on what the arenas hold; write the batch before each run.

        The bytes of batch and hyper inputs are used again once they have been read.
        """
        with self._while_running:
            self._run()
            for wait in self._wait:
                wait()

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
        return {
            name: self._tensors[name]
            for name, role in self.interface.roles.items()
            if role.is_persistent
        }

    @property
    def result_views(self) -> dict[str, tvm.runtime.Tensor]:
        """Every result in its place in the arenas, valid until the next write or step."""
        return dict(self._results)


def _is_gpu(arena: Arena) -> bool:
    return int(arena.device.dlpack_device_type()) != int(tvm.cpu().dlpack_device_type())


def _link(emitted: VmFunction, libraries: Sequence[tvm.runtime.Module]) -> relax.VMExecutable:
    """Virtual-machine code of the straight-line function, with the kernels imported."""
    module = tvm.IRModule({tvm.ir.GlobalVar(_STEP): emitted.function})
    return relax.build(
        module.with_attr("external_mods", list(libraries)),
        tvm.target.Target({"kind": "llvm"}),
        # All shapes are numbers, so nothing has to be lowered or checked again in every step.
        relax_pipeline=relax.transform.AttachGlobalSymbol(),
    )
