"""Temporary files and folders that do not outlive the process, however it ends."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_unfinished: set[Path] = set()
"""What `unfinished` holds at this moment. It belongs to the process, as its files do: whoever ends the
process early (`remove_unfinished`) knows nothing of the writers."""

_MOST_TRIES, _PAUSE_S = 20, 0.01
"""A thread, or a process that is being killed, may write one more file into a folder that is removed."""

_MOST_BYTES = 200
"""Of a name that is used as it is. File systems take 255 bytes, and a temporary name is longer by 34."""


@contextmanager
def unfinished(beside: Path) -> Iterator[Path]:
    """A name in the folder of `beside` for something incomplete.

    Whatever has this name at the end, or when an interrupt ends the process, is removed; a writer
    renames it once it is complete. The name is hidden and ends in ``.part``. It holds the number of
    the process, by which a later call for the same `beside` removes what a killed one has left.
    """
    begin = f".{_stem(beside.name)}.{_host()}-"
    path = beside.parent / f"{begin}{os.getpid()}-{secrets.token_hex(4)}.part"
    _remove_abandoned(beside.parent, begin)
    _unfinished.add(path)
    try:
        yield path
    finally:
        _remove(path)
        if not os.path.lexists(path):  # a linker may still write into it, which is then ended first
            _unfinished.discard(path)


def remove_unfinished() -> None:
    """Remove everything incomplete; for a process that is about to end."""
    for path in list(_unfinished):
        for _ in range(_MOST_TRIES):
            _remove(path)
            if not os.path.lexists(path):
                break
            time.sleep(_PAUSE_S)


def _remove_abandoned(folder: Path, begin: str) -> None:
    """Remove what processes of this host have left that have ended.

    What another host has left in a shared folder is kept, because its processes are not known here.
    """
    pattern = re.compile(re.escape(begin) + r"([1-9][0-9]{0,9})-[0-9a-f]{8}\.part")
    try:
        names = os.listdir(folder)  # noqa: PTH208  names, without a path for each
    except OSError:
        return
    for name in names:
        if (found := pattern.fullmatch(name)) and not _is_alive(int(found[1])):
            _remove(folder / name)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # of another user
    return True


def _stem(name: str) -> str:
    content = os.fsencode(name)
    return name if len(content) <= _MOST_BYTES else hashlib.sha256(content).hexdigest()[:16]


@cache
def _host() -> str:
    """Stands for the machine and container in which the numbers of processes count."""
    known = [platform.node()]
    with suppress(OSError):
        known.append(Path("/etc/machine-id").read_text(encoding="ascii", errors="replace"))
    with suppress(OSError):
        known.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:8]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        try:
            os.unlink(path)  # noqa: PTH108  also where another thread was faster
        except OSError:
            return
