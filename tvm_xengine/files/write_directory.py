"""A directory that is written completely or not at all, and replaces only one of its own kind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tvm_xengine.errors import ExportError
from tvm_xengine.files.named_errors import naming
from tvm_xengine.files.read_text import read_bytes
from tvm_xengine.files.temporary import unfinished

MANIFEST = ".tvm-xengine-files.json"
"""Lists every file that was written into a directory, with the SHA-256 of its content."""

_SCHEMA = 1
"""Version of the manifest."""
_MOST_BYTES = 1 << 24
"""A larger manifest is none of ours: it would list over a hundred thousand files."""
_MOST_NAMED = 3
"""Files that a message names; a longer list would hide the advice behind it."""


def check_free(directory: Path, *, force: bool) -> None:
    """Refuse a directory that exists, unless it may be replaced.

    Only what `write_directory` has written may be: a directory in which every file is in its manifest,
    as it was written. An empty directory is free.

    Raises
    ------
    ExportError
        If it exists and `force` is false, is no directory, or holds anything else.
    """
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise ExportError(f"{directory} exists and is no directory; choose another one")
    if not directory.exists() or not any(directory.iterdir()):
        return
    if not force:
        raise ExportError(f"{directory} exists; give --force to replace it")
    if others := _foreign(directory):
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        raise ExportError(
            f"--force replaces only what tvm-xengine wrote, and {directory} also holds"
            f" {', '.join(others[:_MOST_NAMED])}{more}; move that away, or choose another directory"
        )


def write_directory(directory: Path, write: Callable[[Path], None], *, force: bool = False) -> None:
    """Let `write` fill a directory, then give it its name; a failure leaves nothing behind.

    Raises
    ------
    ExportError
        As `check_free`.
    OSError
        With the name of the file in `directory`, or of `directory` where the system names none.
    """
    check_free(directory, force=force)
    with naming(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(directory) as temporary:
        with _naming_files_in(directory, temporary):
            temporary.mkdir()
            write(temporary)
            document = {"schema": _SCHEMA, "sha256": _digests(temporary)}
            write_file(temporary / MANIFEST, json.dumps(document, indent=1))
        check_free(directory, force=force)
        with unfinished(directory) as old:
            if directory.exists():
                directory.replace(old)
            try:
                temporary.replace(directory)
            except BaseException:
                if old.exists():
                    old.replace(directory)
                raise


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file of a directory that is not complete yet; text becomes UTF-8."""
    with naming(path):
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def _naming_files_in(directory: Path, temporary: Path) -> Iterator[None]:
    """Let every OSError name the file as it would be called in `directory`."""
    try:
        yield
    except OSError as error:
        at = Path(error.filename) if isinstance(error.filename, str) else temporary
        with naming(directory / at.relative_to(temporary) if at.is_relative_to(temporary) else at):
            raise


def _foreign(directory: Path) -> list[str]:
    """Files in a directory that `write_directory` did not write, or that were changed."""
    known = _manifest(directory / MANIFEST)
    if known is None:
        return [path.name for path in sorted(directory.iterdir())]
    folders = {str(parent) for name in known for parent in Path(name).parents}
    others = []
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name == MANIFEST or (path.is_dir() and not path.is_symlink() and name in folders):
            continue
        if path.is_symlink() or not path.is_file() or known.get(name) != _digest(path):
            others.append(name)
    return others


def _manifest(path: Path) -> Mapping[str, str] | None:
    """The digests that a manifest lists; None where it is missing or is none of ours."""
    try:
        if path.is_symlink():
            return None
        document = json.loads(read_bytes(path, _MOST_BYTES))
        digests = document["sha256"] if document["schema"] == _SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(digests, dict):
        return None
    return {str(name): str(digest) for name, digest in digests.items()}


def _digests(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): _digest(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
