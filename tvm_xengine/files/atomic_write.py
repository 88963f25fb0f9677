"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tvm_xengine.files.named_errors import naming
from tvm_xengine.files.temporary import unfinished


def write_atomically(path: Path, text: str) -> None:
    """Write `text` under a temporary name in the folder of `path`, then rename it to `path`."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """The same for bytes.

    A new file has the mode that the umask gives, an existing one keeps its own; a symbolic link is
    followed; what is no regular file (a pipe, ``/dev/stdout``) is written to directly.

    Raises
    ------
    OSError
        With the name of the file, also where the system does not give it (no space left).
    """
    write_all_atomically({path: content})


def write_all_atomically(contents: Mapping[Path, bytes]) -> None:
    """The same for several files: all are complete before the first takes its name.

    What is no regular file is written to once the others are complete.
    """
    with ExitStack() as stack:
        complete = {}
        for path, content in contents.items():
            with naming(path):
                target = _followed(path)
                if not _is_irregular(target):
                    complete[path] = (_written_beside(target, content, stack), target)
        for path, content in contents.items():
            with naming(path):
                if path in complete:
                    temporary, target = complete[path]
                    temporary.replace(target)
                else:
                    _write_directly(path, content)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work whose result it is to hold.

    Raises
    ------
    OSError
        With the name of the file.
    """
    with naming(path):
        target = _followed(path)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if _is_irregular(target):
            if target.is_socket():
                raise OSError(errno.ENXIO, "a socket takes no file")
            if not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        folder = next(parent for parent in target.parents if parent.exists())
        with unfinished(folder / target.name) as temporary:
            temporary.touch(exist_ok=False)


def can_write_into(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made if it is missing.

    Modes do not tell: ``/proc`` takes no folder whatever they say.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _followed(path: Path) -> Path:
    """Where symbolic links lead to."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _is_irregular(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _write_directly(path: Path, content: bytes) -> None:
    """Write to what is no regular file, but to no pipe that nobody reads, which would wait for ever."""
    if not path.is_fifo():
        path.write_bytes(content)
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "no process reads from this pipe; start one first") from error
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as pipe:
        pipe.write(content)


def _written_beside(path: Path, content: bytes, stack: ExitStack) -> Path:
    """The file under a temporary name, which it has until `stack` is closed."""
    if not path.parent.exists():  # what is no folder is refused as such
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = stack.enter_context(unfinished(path))
    with temporary.open("xb") as file:
        file.write(content)
    if path.exists():
        shutil.copymode(path, temporary)
    return temporary
