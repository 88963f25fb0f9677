"""Times of the calls of a step over several processes, by one clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.runtime.marks import Marks

_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Processes of one boot have one monotonic clock."""
_TURNS = 50
"""Messages there and back; the fastest turn bounds the error by half of what it takes (0.1 ms over the
loopback address)."""


class RankMarks(Marks):
    """The begin and the end of each call of a program, each taken by the process that makes it.

    Parameters
    ----------
    steps
        Positions of the calls of all processes in the schedule.
    ranks
        The processes.
    clock_offset_us
        What this one adds to its clock, so that it shows that of the first one.
    """

    def __init__(self, steps: Sequence[int], ranks: Ranks, clock_offset_us: float) -> None:
        super().__init__(steps)
        self._ranks, self._clock_offset_us = ranks, clock_offset_us

    @property
    def step_us(self) -> float:
        """Collective: how long the last step took in the process in which it took longest."""
        return max(map(float, self._ranks.gather_texts(repr(self.last_us))))

    @property
    def times_us(self) -> Mapping[int, float]:
        """Collective: of all processes."""
        own = {number: at + self._clock_offset_us for number, at in super().times_us.items()}
        found: dict[int, float] = {}
        for text in self._ranks.gather_texts(json.dumps(own)):
            found |= {int(number): at for number, at in json.loads(text).items()}
        # By two clocks, a message may have ended before it began.
        return {n: max(at, found[n - 1]) if n % 2 else at for n, at in found.items()}


def clock_offset_us(
    ranks: Ranks, now_ns: Callable[[], int] = time.monotonic_ns, boot: Path = _BOOT
) -> float:
    """Collective: what is added to the clock of this process, so that it shows that of the first one.

    It is 0 on one host. Else the first process answers messages with its time, and the middle of the
    fastest turn is taken (Cristian, "Probabilistic clock synchronization", 1989).
    """
    boots = ranks.gather_texts(boot.read_text() if boot.exists() else str(ranks.rank))
    offsets = [
        0.0 if boots[peer] == boots[0] else _offset_us(ranks, peer, now_ns)
        for peer in range(ranks.size)
    ]
    return offsets[ranks.rank]


def _offset_us(ranks: Ranks, peer: int, now_ns: Callable[[], int]) -> float:
    """What a process has to add to its clock; the others learn nothing of it."""
    import torch

    asked, answer = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    found = []
    for turn in range(_TURNS):
        if ranks.rank == 0:
            ranks.receive(asked, peer, 2 * turn).finish()
            answer[0] = now_ns()
            ranks.send(answer, peer, 2 * turn + 1).finish()
        elif ranks.rank == peer:
            sent_ns = now_ns()
            ranks.send(asked, 0, 2 * turn).finish()
            ranks.receive(answer, 0, 2 * turn + 1).finish()
            took_ns = now_ns() - sent_ns
            found.append((took_ns, int(answer) - sent_ns - took_ns / 2))
    return min(found, default=(0, 0.0))[1] / 1e3
