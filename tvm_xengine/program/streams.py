"""A step program as streams that run side by side, and what they wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.program.step_program import ArenaView, Call, KernelRun, StepProgram
from tvm_xengine.scheduling.platform import Platform, Stream


@dataclass(frozen=True)
class StreamCall:
    """A call of a stream, with its events: each is signalled once in a step, and awaited once.

    Attributes
    ----------
    position
        Of the call in the program.
    awaits
        Events that must have happened before the call begins.
    signals
        Events that have happened when it has ended.
    """

    position: int
    call: Call
    awaits: tuple[int, ...]
    signals: tuple[int, ...]


@dataclass(frozen=True)
class Streams:
    """The calls of each stream in the order of the program.

    Attributes
    ----------
    events
        How many there are; they are numbered from 0.
    """

    calls: Mapping[Stream, tuple[StreamCall, ...]]
    events: int


def stream_of(call: Call, platform: Platform) -> Stream:
    """The stream that makes a call."""
    if isinstance(call, KernelRun):
        return (call.device,)
    return platform.copy_stream(call.src.device, call.dst.device)


def split_into_streams(program: StepProgram, platform: Platform) -> Streams:
    """The streams of a program on a platform; see `split_by`."""
    return split_by(program, lambda call: stream_of(call, platform))


def split_by(program: StepProgram, owner: Callable[[Call], Stream]) -> Streams:
    """The streams of a program; every interleaving that respects the events computes the same.

    A call waits for each earlier one of another stream with which it shares bytes that either of
    the two writes. This covers the producers of what it reads and the last users of the memory that
    it takes over, so that no interleaving needs more memory than the program. Waits that follow
    from others are left out.
    """
    owners = [owner(call) for call in program.calls]
    streams = list(dict.fromkeys(owners))
    number = {stream: k for k, stream in enumerate(streams)}
    order = _Order(program, len(streams))
    ended: list[NDArray[np.int64]] = []  # for each call, the last calls that have ended with it
    known = np.full((len(streams), len(streams)), -1)  # that have ended, as each stream knows
    awaits: list[list[int]] = []
    signals: list[list[int]] = [[] for _ in program.calls]
    events = 0
    for position, call in enumerate(program.calls):
        own = number[owners[position]]
        awaits.append([])
        for before in sorted(order.take(position, call, own), reverse=True):
            other = number[owners[before]]
            if other == own or before <= known[own, other]:
                continue
            known[own] = np.maximum(known[own], ended[before])
            awaits[position].append(events)
            signals[before].append(events)
            events += 1
        known[own, own] = position
        ended.append(known[own].copy())
    calls: dict[Stream, list[StreamCall]] = {stream: [] for stream in streams}
    for position, call in enumerate(program.calls):
        synchronised = StreamCall(position, call, tuple(awaits[position]), tuple(signals[position]))
        calls[owners[position]].append(synchronised)
    return Streams({stream: tuple(own) for stream, own in calls.items()}, events)


def uses(call: Call) -> Iterator[tuple[ArenaView, bool]]:
    """The places in arenas that a call touches, and whether it writes there."""
    if isinstance(call, KernelRun):
        written = (*call.outputs, *(() if call.workspace is None else (call.workspace,)))
        read = tuple(operand for operand in call.inputs if isinstance(operand, ArenaView))
    else:
        written, read = (call.dst,), (call.src,)
    yield from ((view, True) for view in written)
    yield from ((view, False) for view in read)


def overwritten_state(program: StepProgram) -> tuple[str, ...]:
    """State tensors of which a call writes bytes, whether it updates them or only takes the room."""
    written = {view for call in program.calls for view, writes in uses(call) if writes}
    return tuple(
        name
        for name, view in program.interface.inputs.items()
        if program.interface.roles[name].is_persistent and any(map(view.overlaps, written))
    )


class _Order:
    """The last calls of each stream that have touched each byte; bytes used alike are one piece."""

    def __init__(self, program: StepProgram, streams: int) -> None:
        edges: dict[str, set[int]] = {}
        for call in program.calls:
            for view, _ in uses(call):
                edges.setdefault(view.device, set()).update(_ends(view))
        self._edges = {device: np.array(sorted(found)) for device, found in edges.items()}
        pieces = {device: (streams, len(found)) for device, found in edges.items()}
        self._written = {device: np.full(shape, -1) for device, shape in pieces.items()}
        self._touched = {device: np.full(shape, -1) for device, shape in pieces.items()}

    def take(self, position: int, call: Call, stream: int) -> set[int]:
        """Record a call; the last one of each stream, if any, that must have ended before it."""
        before: set[int] = set()
        places = [(view.device, self._pieces(view), writes) for view, writes in uses(call)]
        for device, pieces, writes in places:
            last = (self._touched if writes else self._written)[device][:, pieces]
            before.update(last.max(axis=1, initial=-1).tolist())
        for device, pieces, writes in places:
            self._touched[device][stream, pieces] = position
            if writes:
                self._written[device][stream, pieces] = position
        return before - {-1}

    def _pieces(self, view: ArenaView) -> slice:
        first, last = np.searchsorted(self._edges[view.device], _ends(view))
        return slice(first, last)


def _ends(view: ArenaView) -> tuple[int, int]:
    return view.offset_bytes, view.end_bytes
