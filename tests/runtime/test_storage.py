"""Views of an arena own its memory, in whatever order things are released."""

import ctypes
import gc
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

from tvm_xengine.errors import StorageError
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.storage import Arena, DeviceMemory, HostMemory, allocate_arenas
from tvm_xengine.scheduling.platform import Device, Platform

_DL_MANAGED_TENSOR_BYTES = 64
"""Size of DLPack's exchange structure, with which the freed ones are overwritten."""

VIEWS_THAT_OUTLIVE_THEIR_ARENA = """
import sys
import numpy as np, tvm
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.storage import Arena

arena = Arena(1 << 16, tvm.cpu(0), alignment_bytes=int(sys.argv[1]))
views = [arena.view(ArenaView("cpu", 64 * i, (4, 4), "float32")) for i in range(20)]
del arena
for view in views:
    view.copyfrom(np.ones((4, 4), "float32"))
del views[::2]
assert all(view.numpy().sum() == 16 for view in views)
"""
"""The remaining views are released by the interpreter's shutdown."""


def some_views(arena: Arena, count: int = 200) -> list[tvm.runtime.Tensor]:
    return [arena.view(ArenaView("cpu", 64 * i, (4, 4), "float32")) for i in range(count)]


def test_views_may_outlive_their_arena() -> None:
    arena = Arena(1 << 20, tvm.cpu(0))
    views = some_views(arena)
    for position, view in enumerate(views):
        view.copyfrom(np.full((4, 4), position, "float32"))
    del arena
    gc.collect()
    # Blocks of the size of DLPack's structure: what was freed too early is overwritten.
    blocks = [ctypes.create_string_buffer(b"A" * _DL_MANAGED_TENSOR_BYTES) for _ in range(400)]
    assert all((view.numpy() == position).all() for position, view in enumerate(views))
    del views
    gc.collect()
    assert len(blocks) == 400


@pytest.mark.parametrize("seed", range(5))
def test_arenas_and_views_are_released_in_any_order(seed: int) -> None:
    arenas = [Arena(1 << 14, tvm.cpu(0), alignment_bytes=a) for a in (64, 256, 4096)]
    held: list[object] = [*arenas, *(view for arena in arenas for view in some_views(arena, 50))]
    del arenas
    random.Random(seed).shuffle(held)
    while held:
        one = held.pop()
        if isinstance(one, tvm.runtime.Tensor):
            one.copyfrom(np.zeros((4, 4), "float32"))
    gc.collect()


def test_a_tensor_that_a_user_keeps_holds_its_values() -> None:
    kept = Arena(1 << 12, tvm.cpu(0)).view(ArenaView("cpu", 128, (8,), "float32"))
    kept.copyfrom(np.arange(8, dtype="float32"))
    others = [Arena(1 << 12, tvm.cpu(0)) for _ in range(50)]
    for other in others:
        other.poison()
    assert kept.numpy().tolist() == list(range(8))


def test_more_than_the_machine_has_is_refused_before_it_is_asked_for() -> None:
    platform = Platform((Device("cpu", "llvm"), Device("ddr", None)))
    with pytest.raises(StorageError, match="a budget below that, or take a smaller batch"):
        allocate_arenas(platform, {"cpu": 64, "ddr": 2**60})


def test_a_view_outside_its_arena_is_refused() -> None:
    arena = Arena(256, tvm.cpu(0), alignment_bytes=64)
    with pytest.raises(ValueError, match="inside the 256 bytes"):
        arena.view(ArenaView("cpu", 224, (16,), "float32"))


@pytest.mark.parametrize("memory", [HostMemory, DeviceMemory])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "bool", "int64", "uint8"])
def test_tensors_of_memory_begin_where_they_are_asked_to(
    memory: type[HostMemory | DeviceMemory], dtype: str
) -> None:
    made = memory(1 << 12, tvm.cpu(0))
    tensors = [made.tensor(start, (2, 3), dtype) for start in (0, 64, 1024)]
    scalar, nothing = made.tensor(128, (), dtype), made.tensor(1 << 12, (0,), dtype)
    base = made.address
    del made
    assert [tensor.data_ptr() - base for tensor in tensors] == [0, 64, 1024]
    assert scalar.shape == () and nothing.shape == (0,)
    for tensor in tensors:
        assert (str(tensor.dtype), tensor.shape) == (dtype, (2, 3))
        tensor.copyfrom(np.ones((2, 3), tensor.numpy().dtype))
    assert all((tensor.numpy() == 1).all() for tensor in tensors)


@pytest.mark.slow
@pytest.mark.parametrize("alignment", ["64", "4096"])
def test_views_that_the_interpreter_releases_at_its_end_do_no_harm(alignment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", VIEWS_THAT_OUTLIVE_THEIR_ARENA, alignment],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_valgrind_finds_no_access_to_freed_memory(tmp_path: Path) -> None:
    log = tmp_path / "valgrind.log"
    command = ["valgrind", "--quiet", f"--log-file={log}", "--undef-value-errors=no"]
    command += [sys.executable, "-c", VIEWS_THAT_OUTLIVE_THEIR_ARENA, "64"]
    # The interpreter's own allocator would hide what is freed.
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=1500,
        env={"PYTHONMALLOC": "malloc", "PYTHONPATH": ":".join(sys.path), "TVM_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    # Of a reference to freed memory valgrind tells where it was freed; the dynamic loader's strings,
    # which it reads in words, are the only other thing it complains about here.
    assert "free'd" not in log.read_text()
