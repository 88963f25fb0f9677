"""Where no byte more can be written, the file is named, and what was there is left as it was."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tvm_xengine.files.append_only import AppendOnlyFile
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.files.write_directory import write_directory, write_file


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Files of this process cannot grow beyond a size: a write is cut off there, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_keeps_its_old_content(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    with largest_file(100), pytest.raises(OSError, match="too large") as caught:
        write_bytes_atomically(path, bytes(1000))
    assert caught.value.filename == str(path)
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]
    assert path.read_text() == "old"


def test_rows_are_appended_whole_or_not_at_all(tmp_path: Path) -> None:
    file = AppendOnlyFile(tmp_path / "rows.jsonl")
    file.append({"row": 1})
    with largest_file(100), pytest.raises(OSError, match="too large") as caught:
        file.append({"row": "x" * 1000})
    assert caught.value.filename == str(file.path)
    file.append({"row": 2})
    rows = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert rows == [{"row": 1}, {"row": 2}]


def test_a_file_whose_first_row_does_not_fit_is_not_left_empty(tmp_path: Path) -> None:
    file = AppendOnlyFile(tmp_path / "rows.jsonl")
    for _ in range(2):
        with largest_file(100), pytest.raises(OSError, match="too large"):
            file.append({"row": "x" * 1000})
        assert list(tmp_path.iterdir()) == []
    file.append({"row": 1})
    assert [json.loads(line) for line in file.path.read_text().splitlines()] == [{"row": 1}]


def test_a_directory_is_not_left_in_part(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "inside").mkdir()
        write_file(folder / "inside" / "large.c", "x" * 1000)

    with largest_file(100), pytest.raises(OSError, match="too large") as caught:
        write_directory(tmp_path / "out", write)
    assert caught.value.filename == str(tmp_path / "out" / "inside" / "large.c")
    assert list(tmp_path.iterdir()) == []


def test_an_error_without_a_file_names_the_directory(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "large.c").write_text("x" * 1000)

    with largest_file(100), pytest.raises(OSError, match="too large") as caught:
        write_directory(tmp_path / "out", write)
    assert caught.value.filename == str(tmp_path / "out")


def test_rows_that_two_processes_append_do_not_mix(tmp_path: Path) -> None:
    """Rows longer than the buffers of Python's files, which would be written in pieces."""
    import subprocess
    import sys

    path = tmp_path / "rows.jsonl"
    script = (
        "import sys; from pathlib import Path;"
        " from tvm_xengine.files.append_only import AppendOnlyFile;"
        " file = AppendOnlyFile(Path(sys.argv[1]));"
        " [file.append({'from': sys.argv[2], 'text': sys.argv[2] * 30000}) for _ in range(200)]"
    )
    both = [subprocess.Popen([sys.executable, "-c", script, str(path), who]) for who in "ab"]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [sum(row["from"] == who for row in rows) for who in "ab"] == [200, 200]
    assert all(row["text"] == row["from"] * 30000 for row in rows)
