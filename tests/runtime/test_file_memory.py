"""A device that is a file: steps give the same bits, and its bytes are no part of the process."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_xengine as xe
from tvm_xengine.errors import InvalidPlatformError, StorageError
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.events import can_overlap
from tvm_xengine.runtime.file_memory import READ, WRITE, FileMemory, compiled_file_functions
from tvm_xengine.runtime.storage import Arena

pytestmark = pytest.mark.skipif(not can_overlap(), reason="needs Linux")

_MIB = 1 << 20


def test_what_is_written_is_read_at_every_place(tmp_path: Path) -> None:
    stored = FileMemory(4096, str(tmp_path))
    functions = compiled_file_functions()
    rng = np.random.default_rng(0)
    whole = np.zeros(4096, "uint8")
    for _ in range(50):
        first, size = int(rng.integers(0, 4000)), int(rng.integers(1, 97))
        bytes_ = rng.integers(0, 256, size, dtype="uint8")
        functions[WRITE](tvm.runtime.tensor(bytes_), stored.file, first)
        whole[first : first + size] = bytes_
        got = tvm.runtime.tensor(np.zeros(size, "uint8"))
        functions[READ](got, stored.file, first)
        assert (got.numpy() == bytes_).all()
    assert (stored.tensor(0, (4096,), "uint8").numpy() == whole).all()


@pytest.mark.parametrize("alignment_bytes", [512, 4096, 65536])
@pytest.mark.parametrize("folder", ["of the test", "/dev/shm"])
def test_blocks_are_moved_past_the_cache_where_the_system_takes_them(
    alignment_bytes: int, folder: str, tmp_path: Path
) -> None:
    """On a disk and in memory; what is read in between is what was written directly, and back."""
    where = str(tmp_path) if folder == "of the test" else folder
    if not Path(where).is_dir():
        pytest.skip("no such folder")
    count = 7
    memory, stored = (
        Arena(count * alignment_bytes, tvm.cpu(), alignment_bytes=alignment_bytes, folder=in_)
        for in_ in (None, where)
    )
    flags = fcntl.fcntl(stored.file, fcntl.F_GETFL)
    assert bool(flags & os.O_DIRECT) == (stored.block_bytes > 1)
    assert stored.block_bytes in (1, alignment_bytes)
    functions = compiled_file_functions()
    rng = np.random.default_rng(0)
    for _ in range(20):
        first = int(rng.integers(0, count))
        piece = ArenaView("", first * alignment_bytes, (alignment_bytes,), "uint8")
        bytes_ = rng.integers(0, 256, alignment_bytes, dtype="uint8")
        memory.view(piece).copyfrom(bytes_)
        functions[WRITE](memory.view(piece), stored.file, stored.file_place(piece))
        assert (stored.view(piece).numpy() == bytes_).all()
        stored.view(piece).copyfrom(bytes_[::-1])
        functions[READ](memory.view(piece), stored.file, stored.file_place(piece))
        assert (memory.view(piece).numpy() == bytes_[::-1]).all()


def test_a_place_of_no_block_is_moved_through_the_cache(tmp_path: Path) -> None:
    assert FileMemory(1 << 20, str(tmp_path), alignment_bytes=64).block_bytes == 1


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["cost", "makespan"])
def test_a_step_in_blocks_gives_the_bits_of_a_step_through_the_cache(
    tmp_path: Path, cache: Path, objective: str
) -> None:
    def compiled(alignment_bytes: int) -> xe.Step:
        platform = replace(_platform(str(tmp_path), 1 << 29), alignment_bytes=alignment_bytes)
        return xe.compile(
            "mlp",
            platform=platform,
            objective=objective,
            costs="roofline",
            time_limit_s=0.5,
            cache=cache,
        ).guard()

    through, direct = compiled(64), compiled(4096)
    assert direct.executable.arenas["disk"].block_bytes in (1, 4096)
    rng = np.random.default_rng(0)
    for _ in range(3):
        batch = [rng.random((16, 1, 8, 8), dtype="float32"), rng.integers(0, 10, 16)]
        assert through(*batch) == direct(*batch)
    ours, other = through.state_dict(), direct.state_dict()
    assert all(np.array_equal(ours[name], other[name]) for name in ours)


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    """The superuser writes everywhere, but not in the system's own files."""
    folder = Path("/proc/self") if os.geteuid() == 0 else tmp_path / "closed"
    if os.geteuid():
        folder.mkdir(mode=0o500)
    with pytest.raises(InvalidPlatformError, match="cannot reserve"):
        FileMemory(64, str(folder))


@pytest.mark.slow
def test_a_folder_that_disappears_takes_no_state_along(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    step = xe.compile(
        "mlp",
        platform=_platform(str(folder), 64 * _MIB),
        costs="roofline",
        time_limit_s=0.5,
        cache=cache,
    ).guard()
    rng = np.random.default_rng(0)
    batch = [rng.random((16, 1, 8, 8), dtype="float32"), rng.integers(0, 10, 16)]
    first = step(*batch)
    folder.rmdir()
    assert step(*batch) < first
    with pytest.raises(InvalidPlatformError, match="found none at"):
        step.adopt(step.plan)
    assert step.steps_taken == 2


def test_the_file_has_no_name(tmp_path: Path) -> None:
    stored = FileMemory(_MIB, str(tmp_path))
    assert not list(tmp_path.iterdir())
    assert os.fstat(stored.file).st_nlink == 0
    assert os.fstat(stored.file).st_blocks * 512 >= _MIB


def test_reading_behind_the_end_fails(tmp_path: Path) -> None:
    stored = FileMemory(64, str(tmp_path))
    memory = tvm.runtime.tensor(np.zeros(100, "uint8"))
    with pytest.raises(RuntimeError, match="could not be read from the file"):
        compiled_file_functions()[READ](memory, stored.file, 0)


def test_a_folder_that_is_missing_or_too_full_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlatformError, match="found none at"):
        FileMemory(64, str(tmp_path / "missing"))
    with pytest.raises(InvalidPlatformError, match=r"cannot reserve 4\.\d* EiB|cannot reserve"):
        FileMemory(1 << 62, str(tmp_path))


_RESIDENT = """
import sys
import numpy as np, tvm
from tvm_xengine.runtime.file_memory import WRITE, READ, FileMemory, compiled_file_functions

def resident_kib():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1])

functions = compiled_file_functions()
stored = FileMemory(256 << 20, sys.argv[1])
piece = tvm.runtime.tensor(np.ones(1 << 20, "uint8"))
before = resident_kib()
for k in range(256):
    functions[WRITE](piece, stored.file, k << 20)
    functions[READ](piece, stored.file, k << 20)
after_steps = resident_kib()
stored.fill(1)
assert stored.tensor((256 << 20) - 4, (4,), "uint8").numpy().tolist() == [1] * 4
print(after_steps - before, resident_kib() - before)
"""


@pytest.mark.slow
def test_its_bytes_are_no_part_of_the_memory_of_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _RESIDENT, str(tmp_path)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert all(int(kib) < 32 * 1024 for kib in out.split())


def _platform(folder: str | None, budget_bytes: int) -> xe.Platform:
    return xe.Platform(
        (
            xe.Device("cpu", "llvm -mcpu=native", budget_bytes, kernels=("tir",)),
            xe.Device("disk", None, 64 * _MIB, folder=folder),
        ),
        (xe.Link("cpu", "disk", 1.0, 20.0), xe.Link("disk", "cpu", 1.0, 20.0)),
        home="disk",
    )


def _losses(step: xe.Step, steps: int = 4) -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(steps):
        x = rng.random((16, 1, 28, 28), dtype="float32")
        loss = step(x, rng.integers(0, 10, 16))
        found.append(np.asarray(loss).tobytes())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["cost", "makespan"])
def test_a_step_with_its_state_in_a_file_gives_the_same_bits(
    tmp_path: Path, cache: Path, objective: str
) -> None:
    def compiled(folder: str | None) -> xe.Step:
        return xe.compile(
            "lenet",
            platform=_platform(folder, 3 * _MIB),
            objective=objective,
            costs="roofline",
            time_limit_s=4.0,
            cache=cache,
        )

    in_memory = compiled(None)
    step_plan = in_memory.plan
    plan = step_plan.plan
    devices = tuple(
        replace(device, folder=None if device.can_compute else str(tmp_path))
        for device in plan.problem.platform.devices
    )
    platform = replace(plan.problem.platform, devices=devices)
    plan = replace(plan, problem=replace(plan.problem, platform=platform))
    stored = xe.Step(replace(step_plan, planned=replace(step_plan.planned, plan=plan)))
    assert plan.schedule.transfers
    assert stored.executable.is_overlapped == (objective == "makespan")
    assert _losses(stored) == _losses(in_memory)
    ours, other = stored.state_dict(), in_memory.state_dict()
    assert all(np.array_equal(ours[name], other[name]) for name in ours)


def test_an_error_of_the_file_ends_the_step_by_name(tmp_path: Path, cache: Path) -> None:
    step = xe.compile(
        "mlp",
        platform=_platform(str(tmp_path), 64 * _MIB),
        costs="roofline",
        time_limit_s=0.5,
        cache=cache,
    )
    arena = step.executable.arenas["disk"]
    os.ftruncate(arena.file, 0)
    with pytest.raises(StorageError, match="could not be read from the file"):
        step.executable.run()


def test_a_file_has_no_target_and_links_to_memory_only(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(ValueError, match="only stores"):
        xe.Device("disk", "llvm", folder=str(tmp_path))
    files = [xe.Device(name, None, folder=str(tmp_path)) for name in ("one", "two")]
    platform = xe.Platform((xe.Device("cpu", "llvm"), *files), (xe.Link("one", "two"),))
    with pytest.raises(InvalidPlatformError, match="one is a file"):
        xe.lower(xe.training_step("mlp"), platform, cache=cache)


def test_a_guarded_step_that_fails_leaves_the_state_before_it(tmp_path: Path, cache: Path) -> None:
    step = xe.compile("mlp", costs="roofline", time_limit_s=0.5, cache=cache).guard()
    rng = np.random.default_rng(0)
    executable = step.executable
    x, y = (
        rng.random(view.shape).astype(view.dtype)
        if view.dtype == "float32"
        else np.zeros(view.shape, view.dtype)
        for view in (executable.interface.inputs[name] for name in step.batch_names)
    )
    step(x, y)
    before = executable.read_state()
    run = executable.run

    def interrupted() -> None:
        run()
        raise KeyboardInterrupt

    executable.run = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        step(x, y)
    after = executable.read_state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert step.steps_taken == 1
