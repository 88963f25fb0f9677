"""What went wrong, as one sentence for the one who ran the command."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from tvm_xengine.commands.memory import NO_MEMORY, has_little_room
from tvm_xengine.errors import XEngineError

_NO_MEMORY = (
    *("bad_alloc", "can't start new thread", "cannot allocate memory", "unable to allocate"),
    "failed to map segment",
)
"""How native code and libraries say that the system gave no more memory."""

_NO_SPACE = "No space left on device"


def explained(error: Exception) -> str | None:
    """The sentence for an error that has a cause outside this program; None for a fault of ours."""
    if isinstance(error, XEngineError):
        return str(error)
    said = " ".join(str(one).lower() for one in _chain(error))
    if isinstance(error, MemoryError) or any(sign in said for sign in _NO_MEMORY):
        return NO_MEMORY
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return f"{where}{error.strerror or os.strerror(error.errno)}"
    if _NO_SPACE in str(error):
        return f"{_NO_SPACE}: {_first_line(error)}"
    if isinstance(error, ImportError) and error.name and not error.name.startswith("tvm_xengine"):
        return f"the package {error.name} cannot be loaded: {_first_line(error)}; install it anew"
    # Modules that were imported by halves fail in ways of their own.
    return NO_MEMORY if has_little_room() else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that led to it: libraries hide why the system refused something."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def reported(error: Exception, folder: Path) -> str:
    """The sentence for a fault of this program, whose traceback is written to a new file in `folder`."""
    text = "".join(traceback.format_exception(error))
    summary = f"a fault in tvm-xengine, {type(error).__name__}: {_first_line(error)}"
    try:
        handle, path = tempfile.mkstemp(prefix="tvm-xengine-fault-", suffix=".txt", dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return f"{summary}; run it again with --debug and report what it prints"
    return f"{summary}; please report the file {path}"


def _first_line(error: Exception) -> str:
    """The first line of a message that says something, at most 200 characters, a screen's two lines."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), "no message")[:200]
