"""Other programs that are run to their end, and what they say."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import PurePath

_WAITING = 10
"""A program with a limit of processor time may take so many times as long: it shares the machine."""
_SAID_LINES = 3
"""The last lines say what went wrong; the first ones of a compiler are about what it was given."""


def run_tool(
    command: Sequence[str], *, wall_s: float | None = None, processor_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program that reads nothing; what it writes that is no UTF-8 is replaced.

    Parameters
    ----------
    wall_s
        After so long it is ended.
    processor_s
        After so much computing it is ended, by SIGXCPU; as `wall_s` where the system is not Linux.

    Raises
    ------
    OSError
        If it cannot be started.
    subprocess.TimeoutExpired
        If it was ended because of `wall_s`, or waited ten times as long as it may compute.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        if processor_s is not None:
            wall_s = _limit_computing(process.pid, processor_s)
        try:
            output, errors = process.communicate(timeout=wall_s)
        except BaseException:  # an interrupt, too
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    """What ended a program, and the last lines that it wrote, as one sentence without a full stop."""
    name, code = PurePath(done.args[0]).name, done.returncode
    end = f"with code {code}" if code >= 0 else f"by {_signal_name(-code)}"
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    said = "; ".join(lines[-_SAID_LINES:])
    return f"{name} ended {end}" + (f": {said}" if said else " and said nothing")


def _limit_computing(process: int, processor_s: float) -> float:
    """Limit the processor time of a process, and return how long to wait for it."""
    if not sys.platform.startswith("linux"):
        return processor_s
    import resource

    whole_s = max(1, round(processor_s))
    # A moment after the process has begun; one that has ended by then is there until it is waited for.
    resource.prlimit(process, resource.RLIMIT_CPU, (whole_s, whole_s + 1))  # then SIGKILL
    return _WAITING * processor_s


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
