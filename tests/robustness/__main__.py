"""Damages files, interrupts commands, loses ranks, and writes the page about what became of them.

It goes on where it was interrupted. Every command has a moment before any has its next one, so that an
unfinished walk covers all alike. Several processes may share the moments, each with a file of verdicts of
its own; these are joined by appending one to another. Sections of the page on which there is no verdict
stay as they are.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.commands.faults.forked import NO_THREADS, ForkServer
from tests.commands.faults.interruption import interrupted, once_worked, started
from tests.commands.faults.long_commands import LONG_COMMANDS, QUICK_COMMANDS
from tests.fuzz.readers import KINDS
from tests.fuzz.reading import Worker, answers
from tests.robustness.page import page
from tests.robustness.verdicts import FileVerdict, SignalVerdict, Verdicts

_ROOT = Path(__file__).parents[2]

_SPAN_S = 6.0
"""Signals are spread over so much processor time of a command that imports what it needs."""

_FORKED_SPAN_S = 3.0
"""The same of one that begins with everything imported, on the smallest network."""

_WHOLE = 25
"""Of so many moments one is of a command that begins in an interpreter of its own."""


def damage_files(verdicts: Verdicts, seeds: range) -> None:
    """Judge every kind of file with the seeds that it lacks."""
    with TemporaryDirectory() as folder, Worker() as worker:
        for number, kind in enumerate(KINDS):
            missing = [seed for seed in seeds if (kind, seed) not in verdicts.files]
            if not missing:
                continue
            for seed, answer in answers(kind, missing, Path(folder) / str(number), worker):
                verdicts.add(FileVerdict(kind, seed, answer))
            sys.stdout.write(f"{kind}: {len(missing)} files\n")
            sys.stdout.flush()


def share(text: str) -> tuple[int, int]:
    """``K/N``, the K-th of N shares, counted from 1, as first number and step."""
    position, count = map(int, text.split("/"))
    if not 1 <= position <= count:
        raise ValueError(text)
    return position - 1, count


def send_signals(verdicts: Verdicts, numbers: range) -> None:
    """Interrupt every command at the moments of these numbers that it lacks."""
    with ForkServer() as server, TemporaryDirectory() as folder:
        for number in numbers:
            for name in LONG_COMMANDS:
                if (name, number) not in verdicts.signals:
                    verdict = send_signal(name, number, server, Path(folder) / "command")
                    verdicts.add(verdict)
                    sys.stdout.write(f"{verdict}\n")
                    sys.stdout.flush()


def send_signal(name: str, number: int, server: ForkServer, folder: Path) -> SignalVerdict:
    """Interrupt a command at the moment of a number, in a folder that is removed again."""
    random_of = random.Random(f"{name} {number}")
    is_whole = number % _WHOLE == 0
    command = (LONG_COMMANDS if is_whole else QUICK_COMMANDS)[name]
    moment_s = random_of.uniform(0, _SPAN_S if is_whole else _FORKED_SPAN_S)
    sent = random_of.choice([signal.SIGINT, signal.SIGTERM])
    command.prepare(folder)
    outcome = interrupted(
        *(command.arguments, folder, sent, once_worked(moment_s)),
        start=started if is_whole else server.start,
    )
    shutil.rmtree(folder)
    return SignalVerdict(
        *(name, number, round(moment_s, 3), sent.name, outcome.code),
        *(round(outcome.seconds, 3), tuple(outcome.faults(sent))),
    )


def lose_ranks(path: Path, numbers: range) -> Verdicts:
    """Kill or stop a rank in the runs of these numbers that are missing; all verdicts."""
    # The process forks, which threads of this one would not survive.
    judge = [sys.executable, "-m", "tests.robustness.lost_ranks", str(path)]
    bounds = (numbers.start, numbers.stop, numbers.step)
    subprocess.run([*judge, *map(str, bounds)], env={**os.environ, **NO_THREADS}, check=True)
    return Verdicts(path)


def main() -> None:
    """Do what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500, help="damaged files of each kind")
    parser.add_argument("--moments", type=int, default=100, help="signals to each command")
    parser.add_argument("--losses", type=int, default=50, help="runs that lose a rank")
    parser.add_argument("--share", type=share, default=(0, 1), metavar="K/N", help="of the moments")
    parser.add_argument("--fresh", action="store_true", help="forget earlier verdicts")
    parser.add_argument("--verdicts", type=Path, default=_ROOT / "build" / "robustness.jsonl")
    parser.add_argument("--page", type=Path, default=_ROOT / "docs" / "robustness.md")
    parser.add_argument("--walked", default="", help="which commits were judged, for the page")
    options = parser.parse_args()
    if options.fresh:
        options.verdicts.unlink(missing_ok=True)
    verdicts = Verdicts(options.verdicts)
    damage_files(verdicts, range(options.files))
    first, step = options.share
    send_signals(verdicts, range(first, options.moments, step))
    verdicts = lose_ranks(options.verdicts, range(first, options.losses, step))
    arguments = {name: command.arguments for name, command in LONG_COMMANDS.items()}
    earlier = options.page.read_text(encoding="utf-8") if options.page.exists() else ""
    text = page(verdicts, KINDS, arguments, earlier, options.walked)
    options.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
