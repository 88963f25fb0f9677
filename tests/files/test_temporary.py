"""What killed processes leave is removed by those who write the same name later, and nothing else is."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_xengine.files.atomic_write import write_atomically
from tvm_xengine.files.temporary import remove_unfinished, unfinished
from tvm_xengine.files.write_directory import write_directory

BEGIN = """
import sys, time
from pathlib import Path
from tvm_xengine.files.temporary import unfinished
with unfinished(Path(sys.argv[1])) as path:
    if sys.argv[2] == "folder":
        path.mkdir()
        (path / "inside").write_text("begun")
    else:
        path.write_text("begun")
    print(flush=True)
    time.sleep(600)
"""


def begun(path: Path, kind: str = "file") -> subprocess.Popen[bytes]:
    """A process that writes `path` and does not come to its end."""
    command = [sys.executable, "-c", BEGIN, str(path), kind]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.part"))


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_removed_by_the_next_writer(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    for _ in range(2):
        kill(begun(path, kind))
    assert len(parts(tmp_path)) == 1  # the second one has removed what the first one left
    write_atomically(path, "{}")
    assert [one.name for one in tmp_path.iterdir()] == ["out.json"]


def test_a_directory_is_cleaned_up_too(tmp_path: Path) -> None:
    kill(begun(tmp_path / "package", "folder"))
    write_directory(tmp_path / "package", lambda folder: None)
    assert [one.name for one in tmp_path.iterdir()] == ["package"]


def test_what_a_living_process_writes_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    process = begun(path)
    try:
        write_atomically(path, "{}")
        assert len(parts(tmp_path)) == 1
    finally:
        kill(process)


def test_only_the_same_name_of_this_host_is_removed(tmp_path: Path) -> None:
    kill(begun(tmp_path / "other.json"))
    (left,) = parts(tmp_path)
    process = left.name.partition("-")[2]
    kept = [
        left,
        tmp_path / f".out.json.00000000-{process}",  # of another host
        tmp_path / ".out.json.part",
        tmp_path / ".out.json.notes.part",
    ]
    for path in kept[1:]:
        path.write_text("")
    write_atomically(tmp_path / "out.json", "{}")
    assert all(path.exists() for path in kept)


def test_names_as_long_as_the_file_system_takes_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".json")
    write_atomically(path, "{}")
    assert path.read_text() == "{}"


def test_two_writers_of_one_process_do_not_disturb_each_other(tmp_path: Path) -> None:
    with unfinished(tmp_path / "a") as one, unfinished(tmp_path / "a") as other:
        one.write_text("")
        other.write_text("")
        assert one != other
        assert len(parts(tmp_path)) == 2
    assert parts(tmp_path) == []


_LINKER = """
import sys
from pathlib import Path

folder = Path(sys.argv[1])
for number in range(10**9):
    try:
        (folder / str(number)).touch()
    except FileNotFoundError:
        break
    print(number, flush=True)
"""


def test_what_a_child_writes_while_a_folder_is_removed_is_gone_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unfinished(tmp_path / "library.so") as folder:
        folder.mkdir()
        child = subprocess.Popen([sys.executable, "-c", _LINKER, folder], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        # It always makes another file between the look into the folder and its removal.
        monkeypatch.setattr(shutil, "rmtree", lambda path, **_: None)
    monkeypatch.undo()
    child.kill()
    child.communicate()
    assert list(tmp_path.iterdir()) == [folder]
    remove_unfinished()
    assert list(tmp_path.iterdir()) == []
