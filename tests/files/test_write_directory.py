"""A directory is replaced only where every file in it was written by this program and left alone."""

from pathlib import Path

import pytest

from tvm_xengine.errors import ExportError
from tvm_xengine.files.write_directory import MANIFEST, check_free, write_directory


def package(folder: Path) -> None:
    (folder / "net.c").write_text("int net;")
    (folder / "tests").mkdir()
    (folder / "tests" / "check.c").write_text("int check;")


def names(directory: Path) -> list[str]:
    return sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())


def test_what_was_written_may_be_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_directory(out, package)
    write_directory(out, lambda folder: (folder / "new.c").write_text("") and None, force=True)
    assert names(out) == [MANIFEST, "new.c"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_empty_directory_is_free(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_directory(tmp_path / "out", package)
    assert "net.c" in names(tmp_path / "out")


def sources(out: Path) -> None:
    out.mkdir()
    (out / "main.py").write_text("precious")
    (out / ".git").mkdir()


def with_a_file_added(out: Path) -> None:
    write_directory(out, package)
    (out / "notes.txt").write_text("precious")


def with_a_file_changed(out: Path) -> None:
    write_directory(out, package)
    (out / "net.c").write_text("int net; /* precious */")


def with_a_folder_added(out: Path) -> None:
    write_directory(out, package)
    (out / "tests" / ".git").mkdir()


def with_a_link(out: Path) -> None:
    write_directory(out, package)
    (out / "net.c").unlink()
    (out / "net.c").symlink_to(out.parent / "elsewhere")


def with_a_broken_manifest(out: Path) -> None:
    write_directory(out, package)
    (out / MANIFEST).write_text("[" * 100_000)


def with_a_manifest_of_anothers(out: Path) -> None:
    sources(out)
    (out / MANIFEST).write_text('{"schema": 1, "sha256": {"main.py": "0"}}')


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (sources, "main.py"),
        (with_a_file_added, "notes.txt"),
        (with_a_file_changed, "net.c"),
        (with_a_folder_added, "tests/.git"),
        (with_a_link, "net.c"),
        (with_a_broken_manifest, "net.c"),
        (with_a_manifest_of_anothers, "main.py"),
    ],
)
def test_anything_else_is_refused_by_name_and_left(
    make: object, named: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    make(out)  # type: ignore[operator]
    before = names(out)
    for attempt in (
        lambda: check_free(out, force=True),
        lambda: write_directory(out, package, force=True),
    ):
        with pytest.raises(ExportError, match="only what tvm-xengine wrote") as caught:
            attempt()
        assert named in str(caught.value)
    assert names(out) == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_without_force_nothing_is_replaced(tmp_path: Path) -> None:
    write_directory(tmp_path / "out", package)
    with pytest.raises(ExportError, match="--force"):
        write_directory(tmp_path / "out", package)


def test_a_failure_leaves_the_old_directory(tmp_path: Path) -> None:
    write_directory(tmp_path / "out", package)
    before = names(tmp_path / "out")

    def fail(folder: Path) -> None:
        package(folder)
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        write_directory(tmp_path / "out", fail, force=True)
    assert names(tmp_path / "out") == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
