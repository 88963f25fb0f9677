"""A step program in which one processor starts copies that something else makes meanwhile.

Copies of a channel are made one after the other, in the order in which they are started. Each is started
as soon as the processor has done what it waits for; the processor waits for it before it first uses what
was copied, or writes over it, and so do copies of other channels.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tvm_xengine.program.step_program import Call, KernelRun, StepProgram
from tvm_xengine.program.streams import StreamCall, split_by
from tvm_xengine.scheduling.platform import Stream

Channel = tuple[str, str]
"""The regions between which it copies."""

_PROCESSOR: Stream = ("",)


@dataclass(frozen=True)
class Run:
    """The processor makes the call at a position of the program."""

    position: int


@dataclass(frozen=True)
class Start:
    """It starts the copy at a position of the program."""

    channel: Channel
    position: int


@dataclass(frozen=True)
class Wait:
    """It waits until at most `pending` of the copies that it has started on a channel are left."""

    channel: Channel
    pending: int


Action = Run | Start | Wait


def in_transfers(program: StepProgram, channels: Collection[Channel]) -> tuple[Action, ...]:
    """What the processor does, in order, where `channels` copy beside it; nothing is left under way."""
    order = _Order(program, channels)
    order.start_early()
    for one in order.calls.get(_PROCESSOR, ()):
        order.run(one)
        order.start_early()
    order.finish()
    return tuple(order.actions)


class _Order:
    """What has been done so far."""

    def __init__(self, program: StepProgram, channels: Collection[Channel]) -> None:
        def owner(call: Call) -> Stream:
            if isinstance(call, KernelRun):
                return _PROCESSOR
            pair = (call.src.device, call.dst.device)
            return pair if pair in channels else _PROCESSOR

        self.calls = split_by(program, owner).calls
        self.actions: list[Action] = []
        self._signalled_by: dict[int, tuple[Stream, int]] = {
            event: (stream, k)
            for stream, calls in self.calls.items()
            for k, one in enumerate(calls)
            for event in one.signals
        }
        self._begun = dict.fromkeys(self.calls, 0)
        self._ended = dict.fromkeys(self.calls, 0)

    def run(self, one: StreamCall) -> None:
        """Make a call, after waiting for what it needs."""
        self._wait_for(one)
        self.actions.append(Run(one.position))
        self._begun[_PROCESSOR] += 1
        self._ended[_PROCESSOR] += 1

    def start_early(self) -> None:
        """Start every copy that would wait for nothing."""
        for channel, calls in self.calls.items():
            if channel == _PROCESSOR:
                continue
            while self._begun[channel] < len(calls) and self._is_ready(calls[self._begun[channel]]):
                self._start(channel)

    def finish(self) -> None:
        """Start what is left, and wait for all."""
        for stream, calls in self.calls.items():
            if stream != _PROCESSOR:
                self._end(stream, len(calls) - 1)

    def _is_ready(self, one: StreamCall) -> bool:
        needed = (self._signalled_by[event] for event in one.awaits)
        return all(self._ended[stream] > k for stream, k in needed)

    def _wait_for(self, one: StreamCall) -> None:
        for stream, k in sorted(self._signalled_by[event] for event in one.awaits):
            self._end(stream, k)

    def _end(self, stream: Stream, k: int) -> None:
        """Wait until call `k` of a stream has ended; it comes earlier in the program."""
        while self._begun[stream] <= k:
            self._start(stream)
        if self._ended[stream] <= k:
            self.actions.append(Wait(_pair(stream), self._begun[stream] - 1 - k))
            self._ended[stream] = k + 1

    def _start(self, channel: Stream) -> None:
        one = self.calls[channel][self._begun[channel]]
        self._wait_for(one)
        self.actions.append(Start(_pair(channel), one.position))
        self._begun[channel] += 1


def _pair(stream: Stream) -> Channel:
    src, dst = stream
    return src, dst
