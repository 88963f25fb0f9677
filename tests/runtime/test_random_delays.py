"""Kernels and copies that are slowed down at random never touch bytes that are still in use."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import tvm_xengine as xe
from tests.runtime.at_calls import at_calls
from tests.runtime.steps import NETWORKS, PLATFORMS, batches, compiled
from tvm_xengine.program.step_program import ArenaView, Call, StepProgram
from tvm_xengine.program.streams import Streams, split_into_streams, uses
from tvm_xengine.runtime import executable as executable_module
from tvm_xengine.runtime.events import can_overlap
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.platform import Platform

pytestmark = pytest.mark.skipif(not can_overlap(), reason="needs semaphores in plain memory")

_SHARE_DELAYED = 0.1
_DELAY_S = 5e-4
"""Longer than nearly all kernels of these steps."""
_LONG_DELAY_S = 1e-2
"""Longer than the whole step; of one call in 200."""


class _BytesInUse:
    """Who has written each byte of the arenas, and who is reading or writing it at the moment.

    Each call must find what it would find in turn, and no other call that is running may touch what
    it writes, nor write what it reads.
    """

    def __init__(self, program: StepProgram) -> None:
        self._lock = threading.Lock()
        self._number = {call.step: number for number, call in enumerate(program.calls)}
        edges: dict[str, set[int]] = {}
        for call in program.calls:
            for view, _ in uses(call):
                edges.setdefault(view.device, set()).update(_ends(view))
        self._edges = {device: sorted(found) for device, found in edges.items()}
        self._reading, self._writing = self._nothing(0), self._nothing(0)
        self.faults: list[str] = []
        self.moments = self.most_at_once = 0
        self._running: set[int] = set()
        self.begin_step()
        self._expected: list[list[NDArray[np.int64]]] = []
        for number, call in enumerate(program.calls):
            self._expected.append(self._found(call))
            self._record(call, number)
        self.begin_step()

    def begin_step(self) -> None:
        self._writer = self._nothing(-1)

    def take(self, call: Call, has_ended: bool) -> None:
        with self._lock:
            self.moments += 1
            (self._end if has_ended else self._begin)(call)

    def _begin(self, call: Call) -> None:
        number = self._number[call.step]
        found = self._found(call)
        if not all(map(np.array_equal, found, self._expected[number])):
            self.faults.append(f"call {number} reads other bytes than in turn")
        for view, writes in uses(call):
            at = self._pieces(view)
            if self._writing[view.device][at].any():
                self.faults.append(f"call {number} touches what another one writes")
            if writes and self._reading[view.device][at].any():
                self.faults.append(f"call {number} writes what another one reads")
        self._count(call, 1)
        self._running.add(number)
        self.most_at_once = max(self.most_at_once, len(self._running))

    def _end(self, call: Call) -> None:
        number = self._number[call.step]
        self._count(call, -1)
        self._running.remove(number)
        self._record(call, number)

    def _count(self, call: Call, one: int) -> None:
        for view, writes in uses(call):
            (self._writing if writes else self._reading)[view.device][self._pieces(view)] += one

    def _record(self, call: Call, number: int) -> None:
        for view, writes in uses(call):
            if writes:
                self._writer[view.device][self._pieces(view)] = number

    def _found(self, call: Call) -> list[NDArray[np.int64]]:
        read = [view for view, writes in uses(call) if not writes]
        return [self._writer[view.device][self._pieces(view)].copy() for view in read]

    def _pieces(self, view: ArenaView) -> slice:
        first, last = np.searchsorted(self._edges[view.device], _ends(view))
        return slice(int(first), int(last))

    def _nothing(self, value: int) -> dict[str, NDArray[np.int64]]:
        return {device: np.full(len(found), value) for device, found in self._edges.items()}


def _ends(view: ArenaView) -> tuple[int, int]:
    return view.offset_bytes, view.offset_bytes + view.size_bytes


def _in_turn(executable: StepExecutable) -> StepExecutable:
    return StepExecutable(
        executable.program,
        executable._kernels,
        executable._platform,
    )


def _watched(step: xe.Step, steps: int) -> _BytesInUse:
    """The steps with delays, each compared with the same calls in turn."""
    rng, executable, other = random.Random(0), step.executable, _in_turn(step.executable)
    other.write(executable.read_state())
    rates = {name: np.float32(step.lr) for name in executable.interface.inputs if name == "lr"}
    watch = _BytesInUse(executable.program)

    def slowly(call: Call, has_ended: bool) -> None:
        if has_ended and rng.random() < _SHARE_DELAYED:
            time.sleep(rng.random() * _DELAY_S)
        watch.take(call, has_ended)
        if not has_ended and rng.random() < _SHARE_DELAYED:
            time.sleep(_LONG_DELAY_S if rng.random() < 0.05 else rng.random() * _DELAY_S)

    with at_calls(executable, slowly):
        for batch in islice(batches(step), steps):
            watch.begin_step()
            ours, theirs = (run.step({**batch, **rates}) for run in (executable, other))
            assert watch.faults == []
            assert ours["loss"].tobytes() == theirs["loss"].tobytes()
    ours, theirs = executable.read_state(), other.read_state()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
    return watch


_EVERY = [
    pytest.param(
        network,
        on,
        20 if (network, on) == ("mlp", "three") else 1000,
        marks=() if (network, on) == ("mlp", "three") else pytest.mark.slow,
    )
    for network in NETWORKS
    for on in PLATFORMS
    if on != "one"
]


@pytest.mark.parametrize(("network", "on", "steps"), _EVERY)
def test_no_byte_in_use_is_touched_whatever_is_slow(
    network: str, on: str, steps: int, tmp_path: Path, cache: Path
) -> None:
    step = compiled(network, on, tmp_path, cache)
    executable, devices = step.executable, step.plan.plan.problem.platform.devices
    assert executable.is_overlapped
    watch = _watched(step, steps)
    assert watch.moments == 2 * steps * len(executable.program.calls)
    assert watch.most_at_once > 1
    assert all(executable.arenas[d.name].size_bytes <= d.budget_bytes for d in devices)


def test_a_wait_that_is_missing_is_noticed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without waits the watch finds faults, so it can find them."""

    def without_waits(program: StepProgram, platform: Platform) -> Streams:
        split = split_into_streams(program, platform)
        calls = {
            stream: tuple(replace(one, awaits=(), signals=()) for one in own)
            for stream, own in split.calls.items()
        }
        return Streams(calls, 0)

    step = compiled("mlp", "three", tmp_path, cache)
    monkeypatch.setattr(executable_module, "split_into_streams", without_waits)
    with pytest.raises(AssertionError):
        _watched(step, 20)
