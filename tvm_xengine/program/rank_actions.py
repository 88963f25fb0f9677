"""The part of a step program that one of several processes runs, and the messages that it exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm_xengine.program.step_program import ArenaView, Call, StepProgram, TensorCopy
from tvm_xengine.program.streams import stream_of, uses


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
    begun: dict[int, list[TensorCopy]] = {}  # what is received after so many of these calls
    for position, call in enumerate(mine):
        if _receives(call, rank_of, rank):
            assert isinstance(call, TensorCopy)
            start = position
            while start and not _touches(mine[start - 1], call.dst):
                start -= 1
            if start and _ranks(mine[start - 1], rank_of) != {rank}:
                start = position  # behind a message on the same bytes: waiting for it can wait
            begun.setdefault(start, []).append(call)
    actions: list[list[Call] | Send | Receive | Finish] = []
    open_messages: dict[int, Send | Receive] = {}

    def begin(message: Send | Receive) -> None:
        view, writes = _touched(message)
        finish(view, writes)
        open_messages[message.copy.step] = message
        actions.append(message)

    def finish(view: ArenaView, writes: bool) -> None:
        for step, message in list(open_messages.items()):
            other, other_writes = _touched(message)
            if (writes or other_writes) and view.overlaps(other):
                actions.append(Finish(step))
                del open_messages[step]

    for position in range(len(mine) + 1):
        for copy in begun.get(position, ()):
            begin(Receive(copy, rank_of[copy.src.device]))
        if position == len(mine):
            break
        call = mine[position]
        if _ranks(call, rank_of) == {rank}:
            for view, writes in uses(call):
                finish(view, writes)
            if actions and isinstance(calls := actions[-1], list):
                calls.append(call)
            else:
                actions.append([call])
        elif not _receives(call, rank_of, rank):
            assert isinstance(call, TensorCopy)
            begin(Send(call, rank_of[call.dst.device]))
    made = [LocalCalls(tuple(one)) if isinstance(one, list) else one for one in actions]
    return (*made, *(Finish(step) for step in open_messages))


def _touches(call: Call, view: ArenaView) -> bool:
    return any(view.overlaps(touched) for touched, _ in uses(call))


def _touched(message: Send | Receive) -> tuple[ArenaView, bool]:
    """The bytes of a message in this process, and whether it writes them."""
    if isinstance(message, Send):
        return message.copy.src, False
    return message.copy.dst, True


def _ranks(call: Call, rank_of: Mapping[str, int]) -> set[int]:
    """The processes that take part in a call."""
    return {rank_of[device] for device in stream_of(call)}


def _receives(call: Call, rank_of: Mapping[str, int], rank: int) -> bool:
    """Whether a call is a copy from another process to this one."""
    return (
        isinstance(call, TensorCopy)
        and rank_of[call.dst.device] == rank
        and rank_of[call.src.device] != rank
    )
