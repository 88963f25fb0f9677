"""Runs one command: every failure is a sentence on standard error, and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

# What takes long to import is imported once interrupts are taken.
from tvm_xengine.checks.printable import printable
from tvm_xengine.commands.interrupts import Interrupts, end_by_signals, interruptible
from tvm_xengine.commands.memory import NO_MEMORY
from tvm_xengine.processes.launched import is_launched
from tvm_xengine.processes.torch_later import load_torch_later

_REFUSED = 2  # as shells and argparse report wrong usage
_UNEXPECTED = 70
"""Exit code of a fault of this program (``EX_SOFTWARE`` of sysexits.h)."""
_INTERRUPTED = 128 + 2  # as a shell reports SIGINT
_BROKEN_PIPE = 128 + 13
"""As a shell reports SIGPIPE: who read the output has left."""

_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a file that takes no more."""


def run_process() -> int:
    """Run the command of this process, and end it in order when a signal asks for that."""
    reports = Path(tempfile.gettempdir())
    interrupts = Interrupts()
    code = _UNEXPECTED
    try:
        with interruptible(interrupts):
            load_torch_later()
            code = run(sys.argv[1:], reports, interrupts)
            if interrupts.received is not None:
                _end_interrupted(interrupts)
    except BaseException:
        # Native code makes other exceptions of an interrupt that passes through it.
        if interrupts.received is None:
            raise
        _interrupted()
        _end_interrupted(interrupts)
    end_by_signals(interrupts)
    if interrupts.received is not None:  # while temporary files were removed
        _end_interrupted(interrupts)
    return code


def run(
    arguments: Sequence[str], reports: Path | None = None, interrupts: Interrupts | None = None
) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    reports
        Where the report of a fault is kept; None is the folder of temporary files.
    interrupts
        What has been asked of this process by signals.
    """
    is_debugged = "--debug" in arguments
    try:
        from tvm_xengine.commands.dispatch import run_command

        run_command([argument for argument in arguments if argument != "--debug"])
        print(end="", flush=True)  # noqa: T201
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        _takes_nothing(sys.stdout)
        return _BROKEN_PIPE
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Rich has dropped the rest
            return _BROKEN_PIPE
        raise
    except Exception as error:
        if interrupts is not None and interrupts.received is not None:
            return _interrupted()  # an interrupt that passed through native code
        if is_debugged:
            raise
        return _failed(error, reports or Path(tempfile.gettempdir()))
    return 0


def _interrupted() -> int:
    if not is_launched():
        _say("interrupted; what was measured is kept")
    return _INTERRUPTED


def _failed(error: Exception, reports: Path) -> int:
    try:
        sentence, code = _told(error, reports)
    except (ImportError, MemoryError, OSError):  # there is no memory to tell it with
        sentence, code = NO_MEMORY, _REFUSED
    _say(f"error: {sentence}")
    return code


def _told(error: Exception, reports: Path) -> tuple[str, int]:
    """The sentence and the exit code of a failure."""
    from tvm_xengine.commands.failures import explained, reported
    from tvm_xengine.errors import RankLostError

    known = explained(error)
    if isinstance(error, OSError) and error.filename is None and _failed_to_take(error, sys.stdout):
        known = f"standard output: {known}"
    if known is None:
        return reported(error, reports), _UNEXPECTED
    if isinstance(error, RankLostError):
        from tvm_xengine.cluster.launch import LOST  # loads numpy, for which there may be no room

        return known, LOST
    return known, _REFUSED


def _say(sentence: str) -> None:
    try:
        print(f"tvm-xengine: {printable(sentence)}", file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        _takes_nothing(sys.stderr)


def _takes_nothing(stream: TextIO | None) -> bool:
    """Whether what is left in a stream (None: a closed one) cannot be written, which is then dropped.

    The interpreter would try once more in its end, report that in words of its own, and exit with 120.
    """
    if stream is None:
        return False
    try:
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        return True
    return False


def _failed_to_take(error: OSError, stream: TextIO | None) -> bool:
    """Whether an error without a file's name is that of a stream.

    A buffered one fails again with what it holds. One without a buffer holds nothing, so that after an
    error that only writing makes it is tried with an empty line.
    """
    if getattr(stream, "write_through", False) and error.errno in _OF_WRITING:
        with contextlib.suppress(OSError):
            print(file=stream)
            return False
        return True
    return _takes_nothing(stream)


def _end_interrupted(interrupts: Interrupts) -> None:
    """Leave without the interpreter's own end, which waits for threads and native code."""
    for stream in (sys.stdout, sys.stderr):
        _takes_nothing(stream)
    interrupts.leave()
