"""Launched runs whose processes are forks of this one, which has imported everything.

Imports take two thirds of the time of such a run. A fork begins where they end.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tvm_xengine.cluster import launch
from tvm_xengine.commands.process import run_process
from tvm_xengine.files import temporary
from tvm_xengine.processes.end_with_parent import end_with_parent

TEMPORARY = "temporary"
"""Folder of temporary files of a run, beside the file with its errors."""


class Fork:
    """A process as `subprocess.Popen` has it, as far as that is needed here."""

    def __init__(self, work: Callable[[], int], errors: Path | None) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            # What the parent has to remove is not the fork's.
            atexit._clear()
            temporary._unfinished.clear()
            _end(_silently(work, errors))

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def started(arguments: Sequence[str], errors: Path) -> Fork:
    """``tvm-xengine`` with these arguments, whose ranks are forks of it, in a session of their own."""

    def work() -> int:
        os.setsid()
        os.environ["TMPDIR"] = str(errors.parent / TEMPORARY)
        tempfile.tempdir = None
        launch._start = _start_rank  # type: ignore[assignment]
        sys.argv[1:] = arguments
        return run_process()

    return Fork(work, errors)


def _start_rank(
    command: Sequence[str], rank: int, environment: Mapping[str, str], said: Path
) -> Fork:
    parent = os.getpid()

    def work() -> int:
        end_with_parent(parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        os.environ.update({**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        sys.argv[1:] = command[2:]  # after -m tvm_xengine
        return run_process()

    return Fork(work, said if rank else None)


def _silently(work: Callable[[], int], errors: Path | None) -> int:
    """Do it with errors in a file, and nothing on standard output."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    if errors is not None:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    try:
        return work()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def _end(code: int) -> NoReturn:
    """End this fork as an interpreter ends, without the frames of the process that it is a fork of."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
