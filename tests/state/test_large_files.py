"""Files that say they are large, or are, end in a sentence before they are read."""

import json
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.commands.in_process import run_command
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.files import archives
from tvm_xengine.state.checkpoint import read_checkpoint
from tvm_xengine.state.state_file import most_state_bytes, read_state, read_state_of

LARGE_BYTES = 4 << 30
"""A sparse file of so many bytes takes no room on the disk, and seconds to read."""


def sparse(path: Path, begin: bytes = b"", size_bytes: int = LARGE_BYTES) -> Path:
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(size_bytes)
    return path


def with_header(path: Path) -> Path:
    """A whole safetensors file of one large tensor."""
    entry = {"dtype": "U8", "shape": [LARGE_BYTES], "data_offsets": [0, LARGE_BYTES]}
    header = json.dumps({"w": entry}).encode()
    begin = struct.pack("<Q", len(header)) + header
    return sparse(path, begin, len(begin) + LARGE_BYTES)


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.safetensors", "a.npz", "a.pt", "a.xecp", "run.ckpt"])
def test_a_large_file_of_zeros_is_refused_by_how_it_begins(name: str, tmp_path: Path) -> None:
    path = sparse(tmp_path / name)
    with little_memory(), pytest.raises(InvalidStateError, match="holds no tensors"):
        read_state(path)


def test_a_state_that_is_far_larger_than_the_model_is_not_read(tmp_path: Path) -> None:
    path = with_header(tmp_path / "a.safetensors")
    model = [np.zeros(9, "f")]
    with little_memory(), pytest.raises(InvalidStateError, match=f"at most {8 * 36 + (1 << 26)}"):
        read_state_of(path, model)
    with little_memory(), pytest.raises(InvalidStateError, match="expected at most"):
        read_checkpoint(path, most_state_bytes(model))


def test_eval_refuses_it_before_it_reads_it(tmp_path: Path) -> None:
    path = with_header(tmp_path / "a.safetensors")
    refusal = run_command("eval", "mlp", "--state", str(path)).refusal()
    assert "a.safetensors: expected at most" in refusal


def test_an_archive_of_more_than_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, w=np.zeros(1 << 20, "f"))
    assert zipfile.is_zipfile(path)
    monkeypatch.setattr(archives, "memory_bytes", lambda: 1 << 20)
    with little_memory(), pytest.raises(InvalidStateError, match=r"take 41\d+ bytes"):
        read_state(path)
