"""Start the processes of a run on this machine, and end them together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_xengine.cluster.ranks import RENDEZVOUS, TIMEOUT
from tvm_xengine.processes.end_with_parent import end_with_parent

_POLL_S = 0.05
_GRACE_S = 3.0
"""After one process has failed the others may take so long to notice and to say why, then again as long
to end when they are told to."""


def run_processes(
    command: Sequence[str], size: int, *, timeout_s: float | None = None
) -> tuple[int, int, str] | None:
    """Run a command in `size` processes, which find each other through a file.

    Their messages travel over the loopback address; nothing listens on another one. The first process
    has this one's standard output and standard error. When a process fails, the others are ended.

    Parameters
    ----------
    command
        Arguments of the interpreter.
    timeout_s
        How long a process waits for another one's message.

    Returns
    -------
    rank, code, message
        Of the process that failed first: its exit code, negative for a signal, and what it wrote to
        standard error, which has been shown for the first process. None if all succeeded.
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
                processes.append(_start(command, rank, environment, said))
            failed = _first_failure(processes)
            if failed is None:
                return None
            rank, code = failed
            said = Path(folder) / f"rank_{rank}.txt"
            return rank, code, said.read_text(errors="replace").strip() if rank else ""
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


def _first_failure(processes: Sequence[subprocess.Popen[bytes]]) -> tuple[int, int] | None:
    """Wait until all have succeeded, or one has failed: its rank and exit code."""
    while True:
        codes = [process.poll() for process in processes]
        failed = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
        if failed:
            # One that was ended by a signal is the cause; the others have only lost it.
            rank = min(failed, key=lambda rank: (int(codes[rank] or 0) > 0, rank))
            return rank, int(codes[rank] or 0)
        if all(code == 0 for code in codes):
            return None
        time.sleep(_POLL_S)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs: first in order, then at once."""
    for told in (None, signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if told is not None and process.poll() is None:
                process.send_signal(told)
        until_s = time.perf_counter() + _GRACE_S
        while any(process.poll() is None for process in processes):
            if time.perf_counter() > until_s:
                break
            time.sleep(_POLL_S)


def _loopback() -> str:
    return "lo" if sys.platform.startswith("linux") else "lo0"
