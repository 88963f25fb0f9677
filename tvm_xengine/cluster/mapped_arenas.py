"""Tensors copied in memory that all ranks of a host map; devices and links run side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tvm_xengine.cluster.messages import sent_to_all
from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.cluster.shared_memory import share_memories, shared_events
from tvm_xengine.cluster.transport import Compile
from tvm_xengine.program.step_program import ArenaView, StepProgram
from tvm_xengine.program.streams import Streams, split_into_streams
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.events import SIGNAL, SPIN, Events
from tvm_xengine.runtime.mapped_memory import MappedMemory
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.runtime.storage import Arena, allocate_arenas
from tvm_xengine.runtime.stream_threads import StreamThreads
from tvm_xengine.runtime.vm_function import VmFunction, emit_events, emit_stream
from tvm_xengine.scheduling.platform import Platform


class MappedTransport:
    """Devices that receive copy between their kernels, and wait for other ranks at events in memory."""

    def __init__(self, program: StepProgram, platform: Platform, ranks: Ranks) -> None:
        self._program, self._platform, self._ranks = program, platform, ranks
        self._rank_of = {device.name: device.rank for device in platform.devices}
        self.arenas: Mapping[str, Arena] = {}
        self.open_ended = frozenset[int]()

    def allocate(self, arena_bytes: Mapping[str, int], guard_bytes: int) -> Mapping[str, Arena]:
        """As of a `Transport`."""
        platform, made = self._platform, dict[str, MappedMemory]()

        def memory(name: str, size_bytes: int) -> MappedMemory:
            made[name] = MappedMemory.create(size_bytes)
            return made[name]

        memories = {d.name: partial(memory, d.name) for d in platform.devices if d.folder is None}
        own = allocate_arenas(platform, arena_bytes, guard_bytes=guard_bytes, memories=memories)
        mapped = share_memories(self._ranks, made).all
        far = {name: partial(_given, one) for name, one in mapped.items() if name not in made}
        far_bytes = {name: self._program.interface.arena_bytes[name] for name in far}
        others = allocate_arenas(platform, far_bytes, guard_bytes=guard_bytes, memories=far)
        self.arenas = {**own, **others}
        return own

    def step(self, compiled: Compile, marks: Marks | None = None) -> Callable[[], object]:
        """As of a `Transport`."""
        streams = split_into_streams(self._program, self._platform)
        events = shared_events(self._ranks, streams.events + self._ranks.size**2)
        own = [stream for stream in streams.calls if self._rank_of[stream[-1]] == self._ranks.rank]
        files = {name: arena for name, arena in self.arenas.items() if arena.file is not None}
        functions = {
            f"stream_{k}": emit_stream(
                streams.calls[stream], f"stream_{k}", files, marks, wait=SPIN
            )
            for k, stream in enumerate(own)
        }
        meeting = self._meeting(streams, marks)
        run = dict(compiled({**functions, "meet": meeting}, events, marks))
        meet = run.pop("meet")
        work = [*run.values()]
        if len(work) > 1:
            cores = [self._platform.device(s[0]).cores if len(s) == 1 else () for s in own]
            work = [StreamThreads(work, events, cores).run]
        self._meet = partial(self._do, [meet], events)
        # All have written what the step reads; and none begins the next one while another one reads.
        return partial(self._do, [meet, *work, meet], events)

    def read(
        self, places: Mapping[str, ArenaView], own: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """As of a `Transport`."""
        self._meet()
        found = {
            name: own[name] if name in own else arena.view(view).numpy()
            for name, view in places.items()
            if (arena := self.arenas.get(view.device)) is not None and arena.file is None
        }
        self._meet()  # what was read may change now
        in_files = {name: view for name, view in places.items() if name not in found}
        return {**found, **sent_to_all(self._ranks, self._rank_of, in_files, own)}

    def _meeting(self, streams: Streams, marks: Marks | None) -> VmFunction:
        """The function that comes together with all others; it takes no times, but the tensor of them."""
        rank, size = self._ranks.rank, self._ranks.size
        others = [other for other in range(size) if other != rank]
        come = [(SIGNAL, streams.events + size * rank + other) for other in others]
        wait = [(SPIN, streams.events + size * other + rank) for other in others]
        return emit_events([*come, *wait], "meet", marks)

    def _do(self, work: list[Callable[[], object]], events: Events) -> None:
        with self._ranks.watching(events.release):
            for each in work:
                each()


def _given(memory: MappedMemory, _size_bytes: int) -> MappedMemory:
    return memory
