"""What became of damaged files and interrupted commands, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FileVerdict:
    """What became of a damaged file.

    Attributes
    ----------
    kind
        Of `tests.fuzz.readers.KINDS`.
    answer
        ``read``, ``refused``, or what went wrong.
    """

    kind: str
    seed: int
    answer: str


@dataclass(frozen=True)
class SignalVerdict:
    """What became of an interrupted command.

    Attributes
    ----------
    command
        Of `tests.commands.faults.long_commands.LONG_COMMANDS`.
    moment_s
        Processor time that the command had used when the signal came.
    code
        Exit code; None if it had ended before the signal.
    seconds
        From the signal to the end.
    faults
        What is wrong with it, except for the time.
    """

    command: str
    number: int
    moment_s: float
    signal: str
    code: int | None
    seconds: float
    faults: tuple[str, ...]


@dataclass(frozen=True)
class LossVerdict:
    """What became of a run over two ranks of which one was ended by a signal, or stopped for good.

    Attributes
    ----------
    division
        What is on two ranks, of `tests.robustness.lost_ranks.DIVISIONS`.
    moment_s
        Processor time of the run from its start, or from the first checkpoint, to the signal.
    had_checkpoint
        Whether there was one to resume from.
    seconds
        From the signal until the other one had ended; None if the run had ended before the signal.
    resumed_on
        ``both`` ranks or the one that is ``left``.
    faults
        What is wrong with it.
    """

    number: int
    division: str
    rank: int
    signal: str
    moment_s: float
    had_checkpoint: bool
    seconds: float | None
    resumed_on: str
    faults: tuple[str, ...]


Verdict = FileVerdict | SignalVerdict | LossVerdict


class Verdicts:
    """A file of verdicts; of several on one thing, the last one counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.files: dict[tuple[str, int], FileVerdict] = {}
        self.signals: dict[tuple[str, int], SignalVerdict] = {}
        self.losses: dict[int, LossVerdict] = {}
        for row in _rows(path):
            self._keep(_verdict(row))

    def add(self, verdict: Verdict) -> None:
        """Remember a verdict, in the file as well."""
        self._keep(verdict)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")

    def _keep(self, verdict: Verdict) -> None:
        if isinstance(verdict, FileVerdict):
            self.files[verdict.kind, verdict.seed] = verdict
        elif isinstance(verdict, LossVerdict):
            self.losses[verdict.number] = verdict
        else:
            self.signals[verdict.command, verdict.number] = verdict


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _verdict(row: dict[str, Any]) -> Verdict:
    if "kind" in row:
        return FileVerdict(**row)
    kind = LossVerdict if "division" in row else SignalVerdict
    return kind(**{**row, "faults": tuple(row["faults"])})
