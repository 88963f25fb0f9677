"""Trainings of a small network over two ranks, each in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.cluster.trains import Settings

STEPS = 150
PLACED = ("--pin", "fc2*=d1")
"""Tensors move in every step."""
DIVIDED = ("--replicas", "2")
AUTOMATIC = ("--replicas", "auto")
UNEQUAL = ("--replicas", "d0=11,d1=5")
_POLL_S = 0.01


class Process(Protocol):
    """What is needed of a `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...


def spawned(arguments: Sequence[str], errors: Path) -> Process:
    """``tvm-xengine`` with these arguments in an interpreter of its own."""
    with errors.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "tvm_xengine", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=file,
        )


Start = Callable[[Sequence[str], Path], Process]
"""From arguments, and the file for what it writes to standard error."""


def platform_file(folder: Path, ranks: tuple[int, ...], *, through_memory: bool = False) -> Path:
    """A platform file with a device on each of these ranks."""
    path = folder / f"platform_{'_'.join(map(str, ranks))}.toml"
    Settings("mlp", "", ranks=ranks, through_memory=through_memory).platform.save(path)
    return path


class Launched:
    """A training over two ranks that `tvm-xengine launch` has started.

    Parameters
    ----------
    folder
        For its files.
    cache
        Folder of measurements, which several runs may share.
    options
        Of ``train``.
    timeout_s
        After which a rank that does not answer is given up.
    through_memory
        Whether ranks copy through memory; else there are messages.
    """

    def __init__(
        self,
        folder: Path,
        cache: Path,
        options: Sequence[str] = PLACED,
        *,
        restarts: int = 0,
        steps: int = STEPS,
        timeout_s: float = 20.0,
        through_memory: bool = False,
        start: Start = spawned,
    ) -> None:
        self.report = folder / "report.json"
        self.checkpoint = folder / "run.ckpt"
        platform = platform_file(folder, (0, 1), through_memory=through_memory)
        text = (
            f"launch --rank-timeout {timeout_s:g} --restarts {restarts}"
            f" train mlp --no-compare --platform {platform} --costs roofline"
            f" --solver keep-all --steps {steps} --checkpoint {self.checkpoint}"
            f" --checkpoint-every 10 --cache {cache / 'measurements.jsonl'}"
            f" --json {self.report}"
        )
        self._errors = folder / "errors.txt"
        self.process = start([*text.split(), *options], self._errors)

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def document(self) -> dict[str, Any]:
        """Its report."""
        found: dict[str, Any] = json.loads(self.report.read_text())
        return found

    @property
    def losses(self) -> list[float]:
        """Of the steps that it has taken."""
        return list(self.document["losses"])

    @property
    def said(self) -> str:
        """What it wrote to standard error."""
        return self._errors.read_text(errors="replace")

    def ranks(self, count: int = 2) -> list[int]:
        """Processes of the ranks, once there are so many; those that are left if the run ends before."""
        while self.runs and len(found := _children(self.process.pid)) < count:
            time.sleep(_POLL_S)
        return found if self.runs else []

    def wait_for_checkpoint(self) -> None:
        """Wait until it has written one, or has ended."""
        self.wait_while(lambda: not self.checkpoint.exists())

    def wait_while(self, condition: Callable[[], bool]) -> None:
        """Wait while a condition holds and the run has not ended."""
        while self.runs and condition():
            time.sleep(_POLL_S)

    def end(self) -> int:
        """Wait for its end: the exit code."""
        self.wait_while(lambda: True)
        code = self.process.poll()
        assert code is not None
        return code


def _children(parent: int) -> list[int]:
    """Processes that a process has started, in their order."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append((int(fields[19]), int(entry.name)))  # by when it began
    return [process for _, process in sorted(found)]
