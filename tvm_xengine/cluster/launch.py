"""Start the processes of a run on this machine, and end them together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_xengine.cluster.hosts import HOST
from tvm_xengine.cluster.ranks import TIMEOUT, TIMEOUT_S
from tvm_xengine.processes.end_with_parent import end_with_parent
from tvm_xengine.processes.launched import RENDEZVOUS

_POLL_S = 0.05
_GRACE_S = 1.0
"""After one process has failed the others may take so long to notice and to say why, then again as long
to end when they are told to; of the three seconds of a command that is interrupted it is a part."""


_PATIENCE_RATIO = 1.5
"""A stopped process is given up after so many time limits; those that wait for it say more, after one."""
LOST = 75
"""Exit code of a process that has lost another one (``EX_TEMPFAIL`` of sysexits.h)."""
_BEHIND_A_SIGNAL = 128
"""A process that ends in order because of a signal has this and its number as exit code."""


@dataclass(frozen=True)
class Failure:
    """Why a run has ended early.

    Attributes
    ----------
    rank
        The process that failed first.
    code
        Its exit code; for one that a signal has ended, whatever it did first, its negative number.
    message
        What it wrote to standard error; empty for the first process, whose words have been shown.
    lost
        The processes that a signal has ended, or, where there are none, those that did not answer.
    """

    rank: int
    code: int
    message: str
    lost: tuple[int, ...]


@dataclass(frozen=True)
class Replaced:
    """A run was ended because another one is to take its place."""


def run_processes(
    command: Sequence[str],
    size: int,
    *,
    hosts: Sequence[str] = (),
    timeout_s: float | None = None,
    is_replaced: Callable[[], bool] | None = None,
) -> Failure | Replaced | None:
    """Run a command in `size` processes, which find each other through a file.

    Their messages travel over the loopback address; nothing listens on another one. The first process
    has this one's standard output and standard error. When a process fails, the others are ended.

    Parameters
    ----------
    command
        Arguments of the interpreter.
    hosts
        That the processes stand for, one after the other.
    timeout_s
        How long a process waits for another one's message.
    is_replaced
        Asked now and then; the processes are ended once it says so.

    Returns
    -------
    Failure
        Of the process that failed first; None if all have succeeded.
    """
    with TemporaryDirectory() as folder:
        environment = {**os.environ, RENDEZVOUS: str(Path(folder) / "rendezvous")}
        environment |= {"WORLD_SIZE": str(size), "GLOO_SOCKET_IFNAME": _loopback()}
        if timeout_s is not None:
            environment[TIMEOUT] = str(timeout_s)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(size):
                said = Path(folder) / f"rank_{rank}.txt"
                named = {HOST: hosts[rank]} if hosts else {}
                processes.append(_start(command, rank, {**environment, **named}, said))
            stopped = _Stopped(processes, _PATIENCE_RATIO * (timeout_s or TIMEOUT_S))
            why = _wait(processes, stopped, is_replaced)
            if why is not _Ended.BY_FAILURE:
                return None if why is _Ended.WELL else Replaced()
            _wait_for_all(processes)
            codes = [_code(process) for process in processes]
            lost = _lost(codes) or stopped.given_up
            # Where all others have succeeded, the one that was given up is all that failed.
            ended = {r: code for r, code in enumerate(codes) if code} or dict.fromkeys(lost, LOST)
            # One that was ended by a signal is the cause; the others have only lost it.
            rank = min(ended, key=lambda rank: (ended[rank] > 0, ended[rank] == LOST, rank))
            said = Path(folder) / f"rank_{rank}.txt"
            message = said.read_text(errors="replace").strip() if rank else ""
            return Failure(rank, ended[rank], message, lost)
        finally:
            _end(processes)


def _start(
    command: Sequence[str], rank: int, environment: Mapping[str, str], said: Path
) -> subprocess.Popen[bytes]:
    own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    arguments = [sys.executable, *command]
    ends = partial(end_with_parent, os.getpid())
    if rank == 0:
        return subprocess.Popen(arguments, env=own, preexec_fn=ends)
    with said.open("wb") as file:
        return subprocess.Popen(
            arguments, env=own, preexec_fn=ends, stdout=subprocess.DEVNULL, stderr=file
        )


class _Ended(Enum):
    """Why processes are no longer waited for."""

    WELL = "all have succeeded"
    BY_FAILURE = "one has failed, or does not go on"
    BY_REPLACEMENT = "others take their place"


class _Stopped:
    """Processes that a signal has stopped, and that nobody waits for who would notice.

    Parameters
    ----------
    limit_s
        A process that was stopped for so long is given up.

    Attributes
    ----------
    given_up
        Numbers of those.
    """

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], limit_s: float) -> None:
        self._processes, self._limit_s = processes, limit_s
        self._since_s: dict[int, float] = {}
        self._looked_s = time.monotonic()
        self.given_up: tuple[int, ...] = ()

    def look(self) -> None:
        """See which are stopped now."""
        last_s, self._looked_s = self._looked_s, time.monotonic()
        stopped = [rank for rank, process in enumerate(self._processes) if _is_stopped(process)]
        known = self._since_s
        if self._looked_s - last_s > self._limit_s / 2:  # this one was stopped, too
            known = {}
        self._since_s = {rank: known.get(rank, self._looked_s) for rank in stopped}
        self.given_up = tuple(
            rank for rank, at_s in self._since_s.items() if self._looked_s - at_s > self._limit_s
        )


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return False
    options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    try:
        return process.returncode is None and os.waitid(os.P_PID, process.pid, options) is not None
    except ChildProcessError:  # it has ended, which the next look at its code tells
        return False


def _wait(
    processes: Sequence[subprocess.Popen[bytes]],
    stopped: _Stopped,
    is_replaced: Callable[[], bool] | None,
) -> _Ended:
    while True:
        codes = [process.poll() for process in processes]
        stopped.look()
        if any(codes) or stopped.given_up:
            return _Ended.BY_FAILURE
        if all(code == 0 for code in codes):
            return _Ended.WELL
        if is_replaced is not None and is_replaced():
            return _Ended.BY_REPLACEMENT
        time.sleep(_POLL_S)


def _wait_for_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until none runs any more, for a time of grace."""
    until_s = time.perf_counter() + _GRACE_S
    while any(process.poll() is None for process in processes):
        if time.perf_counter() > until_s:
            return
        time.sleep(_POLL_S)


def _code(process: subprocess.Popen[bytes]) -> int | None:
    code = process.poll()
    told = {_BEHIND_A_SIGNAL + number: -number for number in (signal.SIGINT, signal.SIGTERM)}
    return code if code is None else told.get(code, code)


def _lost(codes: Sequence[int | None]) -> tuple[int, ...]:
    killed = tuple(rank for rank, code in enumerate(codes) if code is not None and code < 0)
    if killed or LOST not in codes:
        return killed
    return tuple(rank for rank, code in enumerate(codes) if code is None)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs: first in order, then at once."""
    for told in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                process.send_signal(told)
        _wait_for_all(processes)


def _loopback() -> str:
    return "lo" if sys.platform.startswith("linux") else "lo0"
