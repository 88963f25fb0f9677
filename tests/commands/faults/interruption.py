"""Interrupting a command at a moment, and what is left of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.processor_time import processor_s

HANG_S = 60.0
"""Who has not ended so long after the signal is taken to hang."""

_CHILDREN_S = 10.0
"""Processes that only clean up after others (loky's resource tracker) may end so much later. They need a
tenth of a second of processor time, which took 2.8 s on two cores with 20 processes."""


@dataclass(frozen=True)
class Outcome:
    """How an interrupted command ended.

    Attributes
    ----------
    code
        Exit code; None when it had ended before the signal. A process that the signal itself ends
        has the negative number, of which a shell makes the same code.
    seconds
        From the signal to the end.
    processes, files
        What is left: processes of its session, and files in its temporary folder and unfinished
        ones in its working folder.
    lost
        Files of measurements with fewer rows than when the signal was sent, or with half a row.
    """

    code: int | None
    seconds: float
    processes: tuple[str, ...]
    files: tuple[str, ...]
    lost: tuple[str, ...]
    errors: str

    def faults(self, sent: signal.Signals) -> list[str]:
        """What is wrong with it, but for the time."""
        found = [f"left {each}" for each in (*self.processes, *self.files)]
        found += [f"lost rows of {each}" for each in self.lost]
        if self.code not in (None, 128 + sent, -sent):
            found.append(f"exit code {self.code}")
        if "Traceback" in self.errors or "Error" in self.errors:
            found.append(self.errors[-2000:])
        return found


class Process(Protocol):
    """A command that runs, in a session of its own: a `subprocess.Popen`, or another of its kind."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def send_signal(self, sent: int, /) -> None: ...

    def communicate(self, *, timeout: float) -> tuple[object, str]: ...


Start = Callable[[Sequence[str], Path, dict[str, str]], Process]
"""From arguments, working folder and environment."""


def started(arguments: Sequence[str], folder: Path, env: dict[str, str]) -> Process:
    """A command in an interpreter of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tvm_xengine", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=env,
        start_new_session=True,
        # A shell starts what runs in the background with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )


def interrupted(
    arguments: Sequence[str],
    folder: Path,
    sent: signal.Signals,
    wait: Callable[[Process], None],
    start: Start = started,
) -> Outcome:
    """Run a command in `folder`, send it a signal when `wait` returns, and see what is left."""
    temporary = folder / "temporary"
    temporary.mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), *sys.path])),
    }
    process = start(arguments, folder, env)
    try:
        wait(process)
        had_ended = process.poll() is not None or _is_exiting(process.pid)
        rows = _rows(folder)
        begin = time.monotonic()
        process.send_signal(sent)
        try:
            _, errors = process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            errors = "Error: it hangs"
        seconds = time.monotonic() - begin
        left = left_after(process.pid, begin + seconds + _CHILDREN_S)
    finally:
        _end_session(process.pid)
    # Files that other libraries keep for good are no waste of ours: torch's compile cache.
    files = [path for path in temporary.iterdir() if not path.name.startswith("torchinductor")]
    files += [path for path in folder.rglob("*") if path.name.endswith(".part")]
    return Outcome(
        None if had_ended else process.returncode,
        seconds,
        tuple(left),
        tuple(str(path.relative_to(folder)) for path in files),
        _lost(folder, rows),
        errors,
    )


_EXITING = 0x4  # PF_EXITING of the kernel


def _is_exiting(pid: int) -> bool:
    """Whether the kernel takes a process apart: it has its exit code, and who waits for it is not told."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return True
    return bool(int(fields[6]) & _EXITING)


def _rows(folder: Path) -> dict[str, int]:
    """Complete lines of every file of rows."""
    return {
        str(path.relative_to(folder)): path.read_bytes().count(b"\n")
        for path in _files(folder, ".jsonl")
    }


def _files(folder: Path, suffix: str) -> list[Path]:
    """Files below a folder, in which a command may remove others meanwhile."""
    walked = os.walk(folder)
    return [Path(at, name) for at, _, names in walked for name in names if name.endswith(suffix)]


def _lost(folder: Path, rows: dict[str, int]) -> tuple[str, ...]:
    lost = [name for name, count in rows.items() if _rows(folder).get(name, 0) < count]
    for path in _files(folder, ".jsonl"):
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                json.loads(line)
        except ValueError:
            lost.append(str(path.relative_to(folder)))
    return tuple(lost)


def after(seconds: float) -> Callable[[Process], None]:
    """Wait so long, or until the command has ended."""

    def wait(process: Process) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)

    return wait


def once_worked(seconds: float) -> Callable[[Process], None]:
    """Wait until the command's processes have used so much processor time, or have long done nothing."""

    def wait(process: Process) -> None:
        deadline = time.monotonic() + _MOST_WALL * seconds
        while time.monotonic() < deadline and process.poll() is None:
            if processor_s(process.pid) >= seconds:
                return
            time.sleep(0.05)

    return wait


_MOST_WALL = 20
"""Seconds on the clock for each of processor time: a busy machine gives a process a tenth of a core."""


def once_started(seconds: float) -> Callable[[Process], None]:
    """Wait until `seconds` after the interpreter has begun with the command's code."""

    def wait(process: Process) -> None:
        while process.poll() is None and not _has_taken_signals(process):
            time.sleep(0.005)
        after(seconds)(process)

    return wait


def _has_taken_signals(process: Process) -> bool:
    """Whether the command's own code runs: it has blocked the signals (bits of SIGINT and SIGTERM)."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
    return bool(blocked & (1 << (signal.SIGTERM - 1)))


def left_after(session: int, deadline: float) -> list[str]:
    """Command lines of the processes of a session that are alive at the deadline (time.monotonic)."""
    while (left := _session(session)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return list(left.values())


def _session(session: int) -> dict[int, str]:
    """Processes of a session that are alive, with their command lines."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry.name)] = line.decode(errors="replace")
        except (OSError, IndexError):
            continue
    return found


def _end_session(session: int) -> None:
    for process in _session(session):
        os.kill(process, signal.SIGKILL)
