"""Reading damaged files in a process that may crash, hang or eat memory, and what becomes of each."""

from __future__ import annotations

import contextlib
import json
import math
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from tests.fuzz.mutations import mutated
from tests.fuzz.readers import KINDS

HANG_S = 60.0
"""A file of a few kilobytes that takes longer hangs its reader, on however loaded a machine."""

START_S = 300.0
"""The first file of a kind imports what reads it."""

READ, REFUSED = "read", "refused"
"""The answers that are right; any other is a traceback or says how the process ended."""


class Worker:
    """A process that reads files; a new one after a crash or a hang."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.close()

    def read(self, kind: str, path: Path, timeout_s: float = HANG_S) -> str:
        """What became of it: `READ`, `REFUSED`, or what went wrong."""
        process = self._running()
        assert process.stdin is not None
        process.stdin.write(json.dumps([kind, str(path)]) + "\n")
        process.stdin.flush()
        answer = self._answer(timeout_s)
        if answer is None:
            self.close()
            return f"no answer within {timeout_s} s"
        if answer:
            return str(json.loads(answer))
        code = process.wait()
        self.close()
        return f"the process ended with {code}"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answer(self, timeout_s: float) -> str | None:
        """The next answer; time for which this process is stopped or the machine sleeps is a second."""
        for _ in range(math.ceil(timeout_s)):
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=1.0)
        return None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._answers = queue.Queue()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            arguments = (self._process, self._answers)
            threading.Thread(target=_forward, args=arguments, daemon=True).start()
        return self._process


def _forward(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put("")


def answers(
    kind: str, seeds: Iterable[int], folder: Path, worker: Worker
) -> Iterator[tuple[int, str]]:
    """What becomes of a sample of a kind of file, damaged once for each seed."""
    sample = folder / KINDS[kind].file
    sample.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind].write(sample)
    whole = sample.read_bytes()
    assert worker.read(kind, sample, START_S) == READ
    for seed in seeds:
        sample.write_bytes(mutated(whole, seed))
        yield seed, worker.read(kind, sample)
