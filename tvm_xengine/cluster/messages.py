"""Tensors as messages between ranks, which may be on several hosts; devices of one rank run in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tvm_xengine.cluster.ranks import Message, Ranks
from tvm_xengine.cluster.transport import Compile
from tvm_xengine.program.rank_actions import (
    Action,
    Finish,
    LocalCalls,
    Receive,
    Send,
    actions_of_rank,
)
from tvm_xengine.program.step_program import ArenaView, StepProgram, TensorCopy
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.runtime.storage import Arena, allocate_arenas
from tvm_xengine.runtime.vm_function import emit_calls
from tvm_xengine.scheduling.platform import Platform

if TYPE_CHECKING:
    import torch

Note = Callable[[], None]
"""Takes the time at which a message begins or has arrived."""


class MessageTransport:
    """Sends and receives at planned addresses, between the calls of this process.

    A tensor is sent as it is when the message begins: whoever makes it has run before, so no rank can be
    too early, and nobody has to wait for all.
    """

    def __init__(self, program: StepProgram, platform: Platform, ranks: Ranks) -> None:
        self._ranks, self._platform = ranks, platform
        self._rank_of = {device.name: device.rank for device in platform.devices}
        self._actions = actions_of_rank(program, self._rank_of, ranks.rank)
        self.arenas: Mapping[str, Arena] = {}
        self.open_ended = frozenset(
            call.step
            for call in program.calls
            if isinstance(call, TensorCopy)
            and self._rank_of[call.src.device] != self._rank_of[call.dst.device]
        )

    def allocate(self, arena_bytes: Mapping[str, int], guard_bytes: int) -> Mapping[str, Arena]:
        """As of a `Transport`."""
        self.arenas = allocate_arenas(self._platform, arena_bytes, guard_bytes=guard_bytes)
        return self.arenas

    def step(self, compiled: Compile, marks: Marks | None = None) -> Callable[[], object]:
        """As of a `Transport`; a copy begins where it is sent, and ends where its bytes are waited for."""
        files = {name: arena for name, arena in self.arenas.items() if arena.file is not None}
        parts = {
            f"part_{k}": emit_calls(action.calls, f"part_{k}", files, marks)
            for k, action in enumerate(self._actions)
            if isinstance(action, LocalCalls)
        }
        run = compiled(parts, None, marks)
        begun: dict[int, tuple[Message, Note]] = {}
        todo = [
            run[f"part_{k}"]
            if isinstance(action, LocalCalls)
            else self._message(action, begun, marks)
            for k, action in enumerate(self._actions)
        ]

        def step() -> None:
            for act in todo:
                act()

        return step

    def read(
        self, places: Mapping[str, ArenaView], own: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """As of a `Transport`."""
        return sent_to_all(self._ranks, self._rank_of, places, own)

    def _message(
        self, action: Action, begun: dict[int, tuple[Message, Note]], marks: Marks | None
    ) -> Callable[[], object]:
        match action:
            case Send(copy, peer):
                begin = partial(self._ranks.send, self._bytes_of(copy.src), peer, copy.step)
                note = _nothing if marks is None else partial(marks.note, marks.begin(copy))
                return partial(_begin, begin, copy.step, begun, note, _nothing)
            case Receive(copy, peer):
                begin = partial(self._ranks.receive, self._bytes_of(copy.dst), peer, copy.step)
                note = _nothing if marks is None else partial(marks.note, marks.begin(copy) + 1)
                return partial(_begin, begin, copy.step, begun, _nothing, note)
            case Finish(step):
                return partial(_finish, step, begun)
        raise TypeError(action)

    def _bytes_of(self, view: ArenaView) -> torch.Tensor:
        """The bytes of a tensor in an arena of this process, as torch takes them."""
        import torch

        flat = replace(view, shape=(view.size_bytes,), dtype="uint8")
        return torch.from_dlpack(self.arenas[view.device].view(flat))


def sent_to_all(
    ranks: Ranks,
    rank_of: Mapping[str, int],
    places: Mapping[str, ArenaView],
    own: Mapping[str, Array],
) -> Mapping[str, Array]:
    """Collective: tensors that lie anywhere, of which `own` are those of this process."""
    import torch

    found = {}
    for name, view in sorted(places.items()):
        content = (
            np.array(own[name], order="C") if name in own else np.empty(view.shape, view.dtype)
        )
        ranks.share(torch.from_numpy(content.reshape(-1).view("uint8")), rank_of[view.device])
        found[name] = content
    return found


def _begin(
    begin: Callable[[], Message],
    step: int,
    begun: dict[int, tuple[Message, Note]],
    note_begin: Note,
    note_end: Note,
) -> None:
    note_begin()
    begun[step] = begin(), note_end


def _finish(step: int, begun: dict[int, tuple[Message, Note]]) -> None:
    message, note_end = begun.pop(step)
    message.finish()
    note_end()


def _nothing() -> None:
    """Takes no time."""
