"""Files are written whole, with the mode that the user's umask gives, and errors name them."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from tvm_xengine.files.atomic_write import check_writable, write_atomically


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_a_new_file_has_the_mode_of_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "a.json", "{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o666 & ~umask


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    path.chmod(0o640)
    write_atomically(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_a_link_that_leads_to_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links") as caught:
        write_atomically(tmp_path / "loop", "new")
    assert caught.value.filename == str(tmp_path / "loop")
    with pytest.raises(OSError, match="symbolic links"):
        check_writable(tmp_path / "loop")
    assert (tmp_path / "loop").is_symlink()


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_atomically(Path("/dev/null"), "text")
    assert Path("/dev/null").is_char_device()


def test_a_pipe_is_written_to_where_it_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no process reads from this pipe") as caught:
        write_atomically(pipe, "text")
    assert caught.value.filename == str(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)


def test_what_takes_no_file_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        with pytest.raises(OSError, match="a socket takes no file"):
            check_writable(tmp_path / "socket")


def test_no_space_left_names_the_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space") as caught:
        write_atomically(tmp_path / "report.json", "{}")
    assert caught.value.filename == str(tmp_path / "report.json")
    assert list(tmp_path.iterdir()) == []
