"""Judge all samples of a database in processes that may die, and remember every verdict."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.databases.verdict import Status, Verdict
from tests.processor_time import processor_s

CHUNK = 12
"""Samples per export and compilation; more save little, and one that fails has all judged again."""

LIMIT_S = 300.0
"""Processor time that one chunk may take; the slowest ones need about a minute."""

WAITING_S = 3600.0
"""How long one chunk may take on the clock; on a busy machine a process may get a tenth of a core."""

CHUNKS_PER_PROCESS = 60
"""Compiled code is never unloaded, so that a process grows by some MB per chunk."""

Judge = Callable[[str, str, Sequence[int]], list[tuple[Status, str]]]
"""From database, operator and the numbers of samples to their verdicts; runs in another process."""


@dataclass(frozen=True)
class Chunk:
    """Some samples of one operator."""

    database: str
    operator: str
    samples: tuple[int, ...]


class Verdicts:
    """The verdicts in a file of JSON lines; of several on one sample, the last one counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, str, int], Verdict] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                verdict = Verdict.from_line(line)
                self._known[verdict.database, verdict.operator, verdict.sample] = verdict

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self._known.values())

    def of(self, database: str, operator: str, sample: int) -> Verdict | None:
        """What is known of a sample."""
        return self._known.get((database, operator, sample))

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Remember verdicts, in the file as well."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            for verdict in verdicts:
                self._known[verdict.database, verdict.operator, verdict.sample] = verdict
                file.write(verdict.to_line() + "\n")


def chunks(
    database: str, operator: str, samples: Iterable[int], size: int = CHUNK
) -> Iterator[Chunk]:
    """The samples in pieces that are judged together."""
    left = list(samples)
    for start in range(0, len(left), size):
        yield Chunk(database, operator, tuple(left[start : start + size]))


def walk(
    work: Iterable[Chunk],
    judge: Judge,
    *,
    jobs: int,
    on_verdicts: Callable[[list[Verdict]], None],
) -> None:
    """Judge every chunk; of one that takes its process along, each sample by itself."""
    coming, waiting = iter(work), deque[Chunk]()
    pool = [_Worker(judge) for _ in range(jobs)]
    try:
        while True:
            for worker in pool:
                if not waiting:
                    waiting.extend(islice(coming, 1))
                if worker.chunk is None and waiting:
                    worker.start(waiting.popleft())
            if all(worker.chunk is None for worker in pool):
                return
            wait([worker.connection for worker in pool if worker.chunk is not None], timeout=1.0)
            for worker in pool:
                if worker.chunk is None:
                    continue
                chunk = worker.chunk
                outcomes = worker.outcomes()
                if outcomes is None:
                    continue
                if isinstance(outcomes, str) and len(chunk.samples) > 1:
                    waiting.extendleft(chunks(chunk.database, chunk.operator, chunk.samples, 1))
                    continue
                if isinstance(outcomes, str):
                    outcomes = [(Status.CRASHED, outcomes)]
                on_verdicts(
                    [
                        Verdict(chunk.database, chunk.operator, sample, *outcome)
                        for sample, outcome in zip(chunk.samples, outcomes, strict=True)
                    ]
                )
    finally:
        for worker in pool:
            worker.stop()


@dataclass
class _Worker:
    """One process that judges one chunk after the other."""

    judge: Judge
    chunk: Chunk | None = None
    _started_s: float = 0.0
    _used_s: float = 0.0
    _count: int = 0
    _process: multiprocessing.process.BaseProcess = field(init=False)
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self._launch()

    def _launch(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.judge), daemon=True)
        self._process.start()
        theirs.close()
        self._count = 0

    def start(self, chunk: Chunk) -> None:
        if self._count >= CHUNKS_PER_PROCESS:
            self.stop()
            self._launch()
        self._count += 1
        self._started_s = time.monotonic()
        self._used_s = processor_s(self._process.pid or 0)
        self.chunk = chunk
        self.connection.send(chunk)

    def outcomes(self) -> list[tuple[Status, str]] | str | None:
        """The verdicts, the sentence how the process ended, or None while it works."""
        try:
            if self.connection.poll():
                made: list[tuple[Status, str]] = self.connection.recv()
                self.chunk = None
                return made
        except (EOFError, ConnectionError):
            self._process.join()
            end = f"the process ended with code {self._process.exitcode}"
        else:
            if (ending := self._ending()) is None:
                return None
            end = ending
        self.stop()
        self._launch()
        self.chunk = None
        return end

    def _ending(self) -> str | None:
        """Why the process is to end, or None while it may go on."""
        if processor_s(self._process.pid or 0) - self._used_s > LIMIT_S:
            return f"no end after {LIMIT_S:.0f} s of processor time"
        if time.monotonic() - self._started_s > WAITING_S:
            return f"no end after {WAITING_S:.0f} s"
        return None

    def stop(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, judge: Judge) -> None:
    while True:
        try:
            chunk: Chunk = connection.recv()
        except EOFError:
            return
        connection.send(judge(chunk.database, chunk.operator, chunk.samples))
