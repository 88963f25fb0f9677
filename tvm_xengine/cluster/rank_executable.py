"""A compiled training step of which this process runs a part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import tvm
from numpy.typing import ArrayLike, NDArray

from tvm_xengine.cluster.links import copies_between_ranks
from tvm_xengine.cluster.ranks import Message, Ranks
from tvm_xengine.cluster.shared_memory import share_memories, shared_events
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.program.rank_actions import (
    Finish,
    LocalCalls,
    Receive,
    Send,
    actions_of_rank,
    local_program,
)
from tvm_xengine.program.step_program import ArenaView, StepProgram
from tvm_xengine.program.streams import overwritten_state, split_into_streams
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.events import SIGNAL, SPIN, event_functions
from tvm_xengine.runtime.executable import StepExecutable, link
from tvm_xengine.runtime.inputs import checked_inputs, in_slices
from tvm_xengine.runtime.mapped_memory import MappedMemory
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.runtime.shared_arenas import ArenaPart
from tvm_xengine.runtime.storage import Arena, allocate_arenas
from tvm_xengine.runtime.stream_threads import StreamThreads
from tvm_xengine.runtime.vm_function import emit_calls, emit_events, emit_stream
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform

if TYPE_CHECKING:
    import torch


class RankExecutable(StepExecutable):
    """One training step over several processes; each has the arenas of its own devices.

    All processes make it, and use it like a `StepExecutable` in the same way: each writes what lies in
    its arenas, and what one reads is sent to all. Where devices copy between ranks through memory, devices
    and links run side by side as in one process. Where there are messages, the devices of one process run in
    turn.

    Parameters
    ----------
    program
        The calls of the whole step.
    libraries
        The compiled kernels that this process calls.
    platform
        All devices.
    ranks
        The processes.
    """

    def __init__(
        self,
        program: StepProgram,
        libraries: Sequence[tvm.runtime.Module],
        platform: Platform,
        ranks: Ranks,
        *,
        library_calls: Mapping[str, LibraryCall] | None = None,
    ) -> None:
        self._ranks, self._whole = ranks, program
        self._copies = copies_between_ranks(platform)
        self._far: dict[str, Arena] = {}  # arenas of other processes
        self._meet: Callable[[], None] = _nothing
        self._rank_of = {device.name: device.rank for device in platform.devices}
        self._actions = actions_of_rank(program, self._rank_of, ranks.rank)
        own = local_program(program, self._rank_of, ranks.rank)
        super().__init__(own, libraries, platform, library_calls=library_calls)
        self.interface = program.interface
        self._agreed_names = (*self.interface.inputs, *self.interface.results)
        # What other processes send may also be written over state.
        self.overwritten = tuple(n for n in overwritten_state(program) if n in self.tensors)
        ranks.meet()  # one process may have compiled more kernels than another

    def _allocated(self, platform: Platform, guard_bytes: int) -> Mapping[str, Arena]:
        if not self._copies:
            return super()._allocated(platform, guard_bytes)
        made: dict[str, MappedMemory] = {}

        def memory(name: str, size_bytes: int) -> MappedMemory:
            made[name] = MappedMemory.create(size_bytes)
            return made[name]

        memories = {d.name: partial(memory, d.name) for d in platform.devices if d.folder is None}
        sizes = self.interface.arena_bytes
        own = allocate_arenas(platform, sizes, guard_bytes=guard_bytes, memories=memories)
        mapped = share_memories(self._ranks, made).all
        far = {name: partial(_given, one) for name, one in mapped.items() if name not in made}
        sizes = {name: self._whole.interface.arena_bytes[name] for name in far}
        self._far.update(allocate_arenas(platform, sizes, guard_bytes=guard_bytes, memories=far))
        return own

    def _arena(self, device: str) -> Arena | ArenaPart:
        return self._far[device] if device in self._far else super()._arena(device)

    def _through_memory(self) -> Callable[[], object]:
        """The streams of this process's devices, which wait for those of others as for one another."""
        rank, size, platform = self._ranks.rank, self._ranks.size, self._platform
        streams = split_into_streams(self._whole, platform)
        events = shared_events(self._ranks, streams.events + size**2)
        own = {s: calls for s, calls in streams.calls.items() if self._rank_of[s[-1]] == rank}
        functions = {
            f"stream_{k}": emit_stream(calls, f"stream_{k}", self._files, wait=SPIN)
            for k, calls in enumerate(own.values())
        }
        others = [other for other in range(size) if other != rank]
        come = [(SIGNAL, streams.events + size * rank + other) for other in others]
        wait = [(SPIN, streams.events + size * other + rank) for other in others]
        functions["meet"] = emit_events([*come, *wait], "meet")
        linked = link(
            {name: function.function for name, function in functions.items()},
            self._libraries,
            {**event_functions(streams.events + size**2), **self._helpers(None)},
        )
        run = {
            name: self._callable(function, linked, name, events.tensor)
            for name, function in functions.items()
        }
        meet = run.pop("meet")
        steps = [*run.values()]
        if len(steps) > 1:
            cores = [platform.device(stream[0]).cores if len(stream) == 1 else () for stream in own]
            steps = [StreamThreads(steps, events, cores, self._settle).run]

        def meet_others() -> None:
            with self._ranks.watching(events.release):
                meet()

        def step() -> None:
            with self._ranks.watching(events.release):
                meet()  # all have written what the step reads
                for run in steps:
                    run()
                meet()  # no process begins the next step while another one still reads its arenas

        self._meet = meet_others
        return step

    def _in_turn(self, marks: Marks | None = None) -> Callable[[], object]:
        if self._copies:
            return self._through_memory()
        parts = {
            f"part_{k}": emit_calls(action.calls, f"part_{k}", self._files)
            for k, action in enumerate(self._actions)
            if isinstance(action, LocalCalls)
        }
        linked = link(
            {name: part.function for name, part in parts.items()},
            self._libraries,
            self._helpers(marks),
        )
        begun: dict[int, Message] = {}
        todo: list[Callable[[], object]] = []
        for k, action in enumerate(self._actions):
            match action:
                case LocalCalls():
                    todo.append(self._callable(parts[f"part_{k}"], linked, f"part_{k}"))
                case Send(copy, peer):
                    todo.append(self._begin(self._ranks.send, copy.src, peer, copy.step, begun))
                case Receive(copy, peer):
                    todo.append(self._begin(self._ranks.receive, copy.dst, peer, copy.step, begun))
                case Finish(step):
                    todo.append(partial(_finish, begun, step))

        def run() -> None:
            for act in todo:
                act()

        return run

    def _begin(
        self,
        transport: Callable[[torch.Tensor, int, int], Message],
        view: ArenaView,
        peer: int,
        tag: int,
        begun: dict[int, Message],
    ) -> Callable[[], None]:
        tensor = self._bytes_of(view)

        def begin() -> None:
            begun[tag] = transport(tensor, peer, tag)

        return begin

    def _bytes_of(self, view: ArenaView) -> torch.Tensor:
        """The bytes of a tensor in an arena of this process, as the transport takes them."""
        import torch

        flat = replace(view, shape=(view.size_bytes,), dtype="uint8")
        return torch.from_dlpack(self.arenas[view.device].view(flat))

    def marked(self) -> NoReturn:
        """Refused: calls of several processes have no common clock."""
        raise UnsupportedModuleError(
            "the calls of a step over several ranks cannot be timed in place; leave out --trace and"
            " --replan"
        )

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
        own = super().read_state(name for name in names if name in self.tensors)
        return self._everywhere(self.interface.inputs, sorted(names), own)

    def read_results(self, names: Iterable[str] | None = None) -> dict[str, NDArray[np.generic]]:
        """Collective: a copy of every result of the last step, or of those in `names`."""
        places = {k: v for k, v in self.interface.results.items() if isinstance(v, ArenaView)}
        wanted = sorted(places if names is None else names)
        own = super().read_results(name for name in wanted if name in self._results)
        return self._everywhere(places, wanted, own)

    def _everywhere(
        self, places: Mapping[str, ArenaView], names: Sequence[str], own: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Collective: tensors, of which this process has copies of its own ones."""
        mapped = {*self._far, *self.arenas} - {*self._files} if self._copies else set()
        self._meet()
        found = {
            name: own[name] if name in own else self._arena(device).view(places[name]).numpy()
            for name in names
            if (device := places[name].device) in mapped
        }
        self._meet()  # what was read may change now
        rest = {n: self._shared(places[n], own.get(n)) for n in names if n not in found}
        return {name: found[name] if name in found else rest[name] for name in names}

    def _shared(self, view: ArenaView, own: Array | None) -> Array:
        """Collective: a tensor, of which the process where it lies has a copy."""
        import torch

        content = np.empty(view.shape, view.dtype) if own is None else np.array(own, order="C")
        flat = torch.from_numpy(content.reshape(-1).view("uint8"))
        self._ranks.share(flat, self._rank_of[view.device])
        return content

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


def _nothing() -> None:
    pass


def _given(memory: MappedMemory, _size_bytes: int) -> MappedMemory:
    return memory


def _finish(begun: dict[int, Message], step: int) -> None:
    begun.pop(step).finish()
