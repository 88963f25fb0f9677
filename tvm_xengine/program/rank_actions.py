"""The part of a step program that one of several processes runs, and the messages that it exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_xengine.program.step_program import ArenaView, Call, StepProgram, TensorCopy
from tvm_xengine.program.streams import uses


@dataclass(frozen=True)
class LocalCalls:
    """Calls whose operands all lie in this process, in order."""

    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Send:
    """Begin to send a tensor to the process `peer`; its bytes stay as they are until the message ends."""

    copy: TensorCopy
    peer: int


@dataclass(frozen=True)
class Receive:
    """Begin to receive a tensor from the process `peer`; its bytes are in use until the message ends."""

    copy: TensorCopy
    peer: int


@dataclass(frozen=True)
class Finish:
    """Wait until the message with the copy at a step of the schedule has ended."""

    step: int


Action = LocalCalls | Send | Receive | Finish


def local_program(program: StepProgram, rank_of: Mapping[str, int], rank: int) -> StepProgram:
    """The calls and places of a program that lie in one process."""
    interface = program.interface
    calls = [call for call in program.calls if _ranks(call, rank_of) == {rank}]
    here = {device for device, its_rank in rank_of.items() if its_rank == rank}
    return StepProgram(
        tuple(calls),
        replace(
            interface,
            inputs={name: view for name, view in interface.inputs.items() if view.device in here},
            results={
                name: view
                for name, view in interface.results.items()
                if isinstance(view, ArenaView) and view.device in here
            },
            arena_bytes={
                name: size for name, size in interface.arena_bytes.items() if name in here
            },
        ),
    )


def actions_of_rank(
    program: StepProgram, rank_of: Mapping[str, int], rank: int
) -> tuple[Action, ...]:
    """What a process does in a step, in order.

    A message begins as early as its bytes allow: a tensor is sent once it is made, and received once
    the last earlier call on the same bytes has run. A process waits for a message only before a call
    that needs its bytes, so messages travel while kernels run. No process waits for ever: the first
    unfinished message of the program has been begun on both sides, or a side still runs its kernels.
    As calls on the same bytes keep their order, no interleaving needs more memory than the program.
    """
    mine = [call for call in program.calls if rank in _ranks(call, rank_of)]
    begun = _receives_by_position(mine, rank_of, rank)
    actions = _Actions()
    for position, call in enumerate(mine):
        actions.begin_all(begun.get(position, ()))
        if _ranks(call, rank_of) == {rank}:
            actions.call(call)
        elif not _receives(call, rank_of, rank):
            assert isinstance(call, TensorCopy)
            actions.begin(Send(call, rank_of[call.dst.device]))
    return actions.finished()


def _receives_by_position(
    mine: Sequence[Call], rank_of: Mapping[str, int], rank: int
) -> dict[int, list[Receive]]:
    """What begins to be received after so many of the calls of a process."""
    begun: dict[int, list[Receive]] = {}
    for position, call in enumerate(mine):
        if _receives(call, rank_of, rank):
            assert isinstance(call, TensorCopy)
            start = position
            while start and not _touches(mine[start - 1], call.dst):
                start -= 1
            if start and _ranks(mine[start - 1], rank_of) != {rank}:
                start = position  # behind a message on the same bytes: waiting for it can wait
            begun.setdefault(start, []).append(Receive(call, rank_of[call.src.device]))
    return begun


class _Actions:
    """The actions so far, and the messages that have begun and not ended."""

    def __init__(self) -> None:
        self._actions: list[list[Call] | Send | Receive | Finish] = []
        self._open: dict[int, Send | Receive] = {}

    def begin_all(self, messages: Iterable[Receive]) -> None:
        for message in messages:
            self.begin(message)

    def begin(self, message: Send | Receive) -> None:
        """Begin a message, once those on the same bytes have ended."""
        self._finish_on(*_touched(message))
        self._open[message.copy.step] = message
        self._actions.append(message)

    def call(self, call: Call) -> None:
        """Run a call, once the messages on its bytes have ended."""
        for view, writes in uses(call):
            self._finish_on(view, writes)
        if self._actions and isinstance(calls := self._actions[-1], list):
            calls.append(call)
        else:
            self._actions.append([call])

    def finished(self) -> tuple[Action, ...]:
        """All actions, with the waits for the last messages."""
        made = [LocalCalls(tuple(one)) if isinstance(one, list) else one for one in self._actions]
        return (*made, *(Finish(step) for step in self._open))

    def _finish_on(self, view: ArenaView, writes: bool) -> None:
        for step, message in list(self._open.items()):
            other, other_writes = _touched(message)
            if (writes or other_writes) and view.overlaps(other):
                self._actions.append(Finish(step))
                del self._open[step]


def _touches(call: Call, view: ArenaView) -> bool:
    return any(view.overlaps(touched) for touched, _ in uses(call))


def _touched(message: Send | Receive) -> tuple[ArenaView, bool]:
    """The bytes of a message in this process, and whether it writes them."""
    if isinstance(message, Send):
        return message.copy.src, False
    return message.copy.dst, True


def _ranks(call: Call, rank_of: Mapping[str, int]) -> set[int]:
    """The processes that take part in a call."""
    return {rank_of[view.device] for view, _ in uses(call)}


def _receives(call: Call, rank_of: Mapping[str, int], rank: int) -> bool:
    """Whether a call is a copy from another process to this one."""
    return (
        isinstance(call, TensorCopy)
        and rank_of[call.dst.device] == rank
        and rank_of[call.src.device] != rank
    )
