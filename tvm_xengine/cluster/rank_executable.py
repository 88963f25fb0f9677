"""A compiled training step of which this process runs a part."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_xengine.cluster.links import copies_between_ranks
from tvm_xengine.cluster.mapped_arenas import MappedTransport
from tvm_xengine.cluster.messages import MessageTransport
from tvm_xengine.cluster.rank_marks import RankMarks, clock_offset_us
from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.cluster.transport import Transport
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.program.rank_actions import local_program
from tvm_xengine.program.step_program import ArenaView, StepProgram
from tvm_xengine.program.streams import overwritten_state
from tvm_xengine.runtime.executable import CompiledKernels, StepExecutable
from tvm_xengine.runtime.inputs import checked_inputs, in_slices
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.runtime.shared_arenas import ArenaPart
from tvm_xengine.runtime.storage import Arena
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform


class RankExecutable(StepExecutable):
    """One training step over several processes; each has the arenas of its own devices.

    All processes make it, and use it like a `StepExecutable` in the same way: each writes what lies in
    its arenas, and what one reads is given to all. Where devices copy between ranks through memory,
    devices and links run side by side as in one process. Where there are messages, the devices of one
    process run in turn.

    Parameters
    ----------
    program
        The calls of the whole step.
    kernels
        The compiled kernels that this process calls.
    platform
        All devices.
    ranks
        The processes.
    """

    def __init__(
        self,
        program: StepProgram,
        kernels: CompiledKernels,
        platform: Platform,
        ranks: Ranks,
    ) -> None:
        self._ranks = ranks
        through = MappedTransport if copies_between_ranks(platform) else MessageTransport
        self._transport: Transport = through(program, platform, ranks)
        rank_of = {device.name: device.rank for device in platform.devices}
        own = local_program(program, rank_of, ranks.rank)
        super().__init__(own, kernels, platform)
        self.interface = program.interface
        self._all_calls = program.calls
        self._clock_offset_us: float | None = None
        self._agreed_names = (*self.interface.inputs, *self.interface.results)
        # What other processes send may also be written over state.
        self.overwritten = tuple(n for n in overwritten_state(program) if n in self.tensors)
        ranks.meet()  # one process may have compiled more kernels than another

    def _allocated(self, platform: Platform, guard_bytes: int) -> Mapping[str, Arena]:
        return self._transport.allocate(self.interface.arena_bytes, guard_bytes)

    def _arena(self, device: str) -> Arena | ArenaPart:
        return self._transport.arenas[device]

    def _in_turn(self, marks: Marks | None = None) -> Callable[[], object]:
        return self._transport.step(self._compiled, marks)

    @property
    def runs_in_turn(self) -> bool:
        """Never: each process runs its own calls."""
        return False

    @property
    def open_ended(self) -> Collection[int]:
        """Copies that are messages: they arrive at some time before they are waited for."""
        return self._transport.open_ended

    def _new_marks(self) -> Marks:
        """Collective: of the calls of all processes, by the clock of the first one."""
        if self._clock_offset_us is None:
            self._clock_offset_us = clock_offset_us(self._ranks)
        steps = [call.step for call in self._all_calls]
        return RankMarks(steps, self._ranks, self._clock_offset_us)

    def write(self, arrays: Mapping[str, ArrayLike]) -> None:
        """Check inputs, and write those that lie in this process."""
        checked = in_slices(self.interface, checked_inputs(self.interface, arrays))
        self._write({name: values for name, values in checked.items() if name in self.tensors})

    def agreed(self, found: str | None) -> str | None:
        """Collective: the first input or result that a process has found, None where none has."""
        names = self._agreed_names
        least = self._ranks.least(len(names) if found is None else names.index(found))
        return names[least] if least < len(names) else None

    def read_state(self, names: Iterable[str] | None = None) -> dict[str, NDArray[np.generic]]:
        """Collective: a copy of every persistent tensor, or of those in `names`."""
        if names is None:
            names = self.names(*(role for role in Role if role.is_persistent))
        places = {name: self.interface.inputs[name] for name in names}
        own = super().read_state(name for name in places if name in self.tensors)
        return {**self._transport.read(places, own)}

    def read_results(self, names: Iterable[str] | None = None) -> dict[str, NDArray[np.generic]]:
        """Collective: a copy of every result of the last step, or of those in `names`."""
        every = self.interface.results
        views = {name: every[name] for name in (every if names is None else names)}
        places = {name: view for name, view in views.items() if isinstance(view, ArenaView)}
        own = super().read_results(name for name in places if name in self._results)
        return {**self._transport.read(places, own)}

    @property
    def state_views(self) -> NoReturn:
        """Refused: a view is of the memory of one process."""
        raise _no_views()

    @property
    def result_views(self) -> NoReturn:
        """Refused: a view is of the memory of one process."""
        raise _no_views()

    @property
    def measured_peak_bytes(self) -> Mapping[str, int]:
        """Collective: for each device of all processes, the bytes that its allocator gave to the step."""
        own = json.dumps(dict(super().measured_peak_bytes))
        found: dict[str, int] = {}
        for text in self._ranks.gather_texts(own):
            found.update(json.loads(text))
        return found


def _no_views() -> UnsupportedModuleError:
    return UnsupportedModuleError(
        "the step lies in the memory of several processes, of which there are no views; take copies"
    )
