"""A step that fails at any moment leaves the state of the last completed step."""

from __future__ import annotations

import os
import signal
from itertools import islice
from pathlib import Path

import pytest

import tvm_xengine as xe
from tests.commands.faults.disks import full_disk
from tests.runtime.at_calls import at_calls
from tests.runtime.steps import NETWORKS, PLATFORMS, batches, compiled, state_bytes
from tests.shares import share
from tvm_xengine.errors import InvalidPlatformError, InvalidStateError, StorageError
from tvm_xengine.program.step_program import Call, TensorCopy
from tvm_xengine.runtime.events import can_overlap

pytestmark = pytest.mark.skipif(not can_overlap(), reason="needs Linux")


_EVERY = [
    pytest.param(network, on, marks=() if (network, on) == ("mlp", "file") else pytest.mark.slow)
    for network in NETWORKS
    for on in PLATFORMS
]


@pytest.mark.parametrize(("network", "on"), _EVERY)
def test_a_fault_at_any_call_undoes_the_step(
    network: str, on: str, tmp_path: Path, cache: Path
) -> None:
    step = compiled(network, on, tmp_path, cache).guard()
    good, spare = batches(step), next(batches(step, seed=1))
    step(next(good))
    fails_at = -1
    marks: list[bool] = []

    def fault(_call: Call, _has_ended: bool) -> None:
        marks.append(True)
        if len(marks) == fails_at:
            raise RuntimeError("injected")

    with at_calls(step.executable, fault):
        step(next(good))
        moments = len(marks)
        assert moments == 2 * len(step.executable.program.calls)
        before, taken = state_bytes(step), step.steps_taken
        for fails_at in range(1, moments + 1):
            marks.clear()
            with pytest.raises(RuntimeError, match="injected"):
                step(spare)
            assert state_bytes(step) == before, fails_at
        fails_at = -1
        losses = [float(step(batch)) for batch in islice(good, 3)]
    assert step.steps_taken == taken + 3
    twin = compiled(network, on, tmp_path, cache)
    assert [float(twin(batch)) for batch in islice(batches(twin), 5)][2:] == losses
    assert state_bytes(twin) == state_bytes(step)


@pytest.mark.parametrize(
    ("guarded", "every"), share([(False, 4), (False, 1), (True, 1)], [(False, 4)])
)
def test_an_interrupt_at_any_call_leaves_a_whole_step(
    guarded: bool, every: int, tmp_path: Path, cache: Path
) -> None:
    """Also where another thread takes the signal."""
    step, twin = (compiled("mlp", "file", tmp_path, cache) for _ in range(2))
    step.guard(guarded)
    moments: list[bool] = []
    with at_calls(step.executable, lambda _call, _ended: moments.append(True)):
        step(next(batches(step)))
    twin(next(batches(twin)))
    count, arrives_at = len(moments), 1 - every

    def interrupt(_call: Call, _has_ended: bool) -> None:
        moments.append(True)
        if len(moments) == arrives_at:
            os.kill(os.getpid(), signal.SIGINT)

    with at_calls(step.executable, interrupt):
        for taken, batch in enumerate(islice(batches(step, seed=2), 0, count, every), start=2):
            arrives_at += every
            moments.clear()
            with pytest.raises(KeyboardInterrupt):
                step(batch)
            twin(batch)
            assert step.steps_taken == twin.steps_taken == taken
            assert state_bytes(step) == state_bytes(twin)


class _BreakableFile:
    """The open file of a device, for which one of reading and writing can become an error."""

    def __init__(self, step: xe.Step) -> None:
        file = step.executable.arenas["disk"].file
        assert file is not None
        self._file, self._usual = file, os.dup(file)

    def open_for(self, mode: int) -> None:
        other = os.open(f"/proc/self/fd/{self._usual}", mode)
        os.dup2(other, self._file)
        os.close(other)

    def become_full(self) -> None:
        full = os.open("/dev/full", os.O_RDWR)
        os.dup2(full, self._file)
        os.close(full)

    def repair(self) -> None:
        os.dup2(self._usual, self._file)


def _copies(step: xe.Step, *, reads: bool) -> list[list[Call]]:
    """Each copy from the file, or to it."""
    return [
        [call]
        for call in step.executable.program.calls
        if isinstance(call, TensorCopy) and (call.src if reads else call.dst).device == "disk"
    ]


@pytest.mark.slow
def test_a_disk_that_becomes_full_ends_training_with_the_state_of_the_last_step(
    tmp_path: Path, cache: Path
) -> None:
    """Each write of the fourth step finds no space left, as ``/dev/full`` says."""
    step, twin = (compiled("mlp", "file", tmp_path, cache) for _ in range(2))
    given = list(islice(batches(step), 6))
    file, path = _BreakableFile(step), tmp_path / "run.ckpt"
    begun: list[Call] = []

    def fault(call: Call, has_ended: bool) -> None:
        if [call] in _copies(step, reads=False) and not has_ended:
            begun.append(call)
            if len(begun) == 3 * len(_copies(step, reads=False)) + 1:
                file.become_full()

    with at_calls(step.executable, fault), pytest.raises(StorageError) as ended:
        xe.fit(step, given, checkpoint=path)
    for said in (f"written to the file of a device in {tmp_path}: No space", "save it, or go on"):
        assert said in str(ended.value)
    assert xe.fit(twin, given, max_steps=3).steps_taken == step.steps_taken == 3
    assert state_bytes(step) == state_bytes(twin)
    file.repair()
    assert state_bytes(step) == state_bytes(twin)
    resumed = compiled("mlp", "file", tmp_path, cache)
    rest = xe.fit(resumed, given, checkpoint=xe.CheckpointOptions(path, resume=True))
    assert rest.losses == xe.fit(twin, given[3:]).losses


def test_a_full_disk_is_refused_before_a_step(tmp_path: Path, cache: Path) -> None:
    with (
        full_disk(tmp_path / "disk") as disk,
        pytest.raises(InvalidPlatformError, match=r"cannot reserve .* No space left on device"),
    ):
        compiled("mlp", "file", disk, cache)


def test_a_file_that_cannot_be_read_costs_no_state(tmp_path: Path, cache: Path) -> None:
    step = compiled("mlp", "file", tmp_path, cache).guard()
    good, file = batches(step), _BreakableFile(step)
    step(next(good))
    before, batch = state_bytes(step), next(good)
    failing: list[Call] = []

    def fault(call: Call, has_ended: bool) -> None:
        if call in failing and not has_ended:
            file.open_for(os.O_WRONLY)

    with at_calls(step.executable, fault):
        for failing[:] in _copies(step, reads=True):
            with pytest.raises(StorageError, match="could not be read"):
                step(batch)
            file.repair()
            assert state_bytes(step) == before


@pytest.mark.slow
def test_while_a_file_cannot_be_written_the_state_is_read_from_where_it_is_kept(
    tmp_path: Path, cache: Path
) -> None:
    step, twin = (compiled("mlp", "file", tmp_path, cache) for _ in range(2))
    good, file = batches(step.guard()), _BreakableFile(step)
    first, second = next(good), next(good)
    step(first)
    before = state_bytes(step)
    checkpoint = tmp_path / "kept.safetensors"
    failing: list[Call] = []

    def fault(call: Call, has_ended: bool) -> None:
        if call in failing and not has_ended:
            file.open_for(os.O_RDONLY)

    with at_calls(step.executable, fault):
        for failing[:] in _copies(step, reads=False):
            with pytest.raises(StorageError, match="kept outside that file"):
                step(second)
            assert state_bytes(step) == before
            with pytest.raises(StorageError, match="kept outside that file"):
                step(second)
            assert state_bytes(step) == before
            step.save(checkpoint)
            file.repair()
            assert state_bytes(step) == before
    twin.load(checkpoint)
    assert twin.steps_taken == step.steps_taken == 1
    assert twin(second) == step(second)
    assert state_bytes(twin) == state_bytes(step)


def test_without_a_guard_a_failed_step_is_not_taken_for_a_state(
    tmp_path: Path, cache: Path
) -> None:
    step = compiled("mlp", "one", tmp_path, cache)
    good = batches(step)
    step(next(good))
    saved = step.saved_state()

    def fault(_call: Call, _has_ended: bool) -> None:
        raise RuntimeError("injected")

    with at_calls(step.executable, fault), pytest.raises(RuntimeError, match="injected"):
        step(next(good))
    for use in (
        lambda: step(next(good)),
        lambda: step.predict(next(good)["x"]),
        step.state_dict,
        lambda: step.state_dict(copy=False),
        step.optimizer_state_dict,
        lambda: step.save(tmp_path / "torn.safetensors"),
        step.guard,
    ):
        with pytest.raises(InvalidStateError, match="the state is lost: a step that wrote over"):
            use()
    assert not (tmp_path / "torn.safetensors").exists()
    step.restore(saved, 1)
    twin, batch = compiled("mlp", "one", tmp_path, cache), next(good)
    twin.restore(saved, 1)
    assert step(batch) == twin(batch)
    assert state_bytes(step) == state_bytes(twin)
