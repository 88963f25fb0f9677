"""Runs over two ranks of which one is killed, told to end, or stopped for good, at a random moment.

``python -m tests.robustness.lost_ranks VERDICTS FIRST END STEP`` judges those of a range of numbers.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Collection, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tests.cluster.forked import TEMPORARY, started
from tests.cluster.launched import AUTOMATIC, DIVIDED, PLACED, UNEQUAL, Launched, Start
from tests.commands.faults.forked import import_everything
from tests.commands.faults.interruption import left_after
from tests.processor_time import processor_s
from tests.robustness.verdicts import LossVerdict, Verdicts

DIVISIONS: Mapping[str, tuple[str, ...]] = {
    "layers": PLACED,
    "batch": DIVIDED,
    "unequal": UNEQUAL,
    "automatic": AUTOMATIC,
}
"""What is divided over the ranks, and the options that say so: layers, or the batch in halves, in unequal
shares, or as the plan finds it. Folders have these names."""
ROUNDING = {"rtol": 1e-3, "atol": 1e-4}
"""Other shares of a batch round sums otherwise, over hundreds of steps."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
_SAME = {"rtol": 0.0, "atol": 0.0}
_HANG_S = 150.0
"""Who has not ended so long after the signal hangs. The other one may wait for 60 s for a process that has
not joined yet, on a busy machine."""
_CHILDREN_S = 10.0
"""What only cleans up after others may end so much later."""
_SHARED = Path("/dev/shm")


class LostRanks:
    """Judges runs by number; what is random depends on the number alone.

    Parameters
    ----------
    folder
        For the files of runs.
    """

    def __init__(self, folder: Path, start: Start) -> None:
        self._folder, self._start = folder, start
        self._undisturbed = cache(self._run_undisturbed)

    def judged(self, number: int) -> LossVerdict:
        """Disturb a run, and resume it."""
        chance = random.Random(number)
        division, sent = list(product(DIVISIONS, SIGNALS))[number % (len(DIVISIONS) * len(SIGNALS))]
        rank, resumed_on = chance.randrange(2), chance.choice(["both", "left"])
        is_training = chance.random() < 0.5
        whole, starting_s, training_s = self._undisturbed(division)
        moment_s = chance.uniform(0, training_s if is_training else starting_s)

        shared = set(_SHARED.iterdir())
        run = self._launched(str(number), division, restarts=int(resumed_on == "left"))
        ranks = run.ranks()
        if is_training:
            run.wait_for_checkpoint()
        since_s = processor_s(run.process.pid) if is_training else 0.0
        run.wait_while(lambda: processor_s(run.process.pid) < since_s + moment_s)
        had_checkpoint, had_ended = run.checkpoint.exists(), not run.runs
        sent_s = time.monotonic()
        if not had_ended:
            _send(ranks[rank], sent)
        run.wait_while(lambda: "going on" not in run.said and time.monotonic() < sent_s + _HANG_S)
        seconds, hangs = time.monotonic() - sent_s, run.runs and "going on" not in run.said
        faults = []
        if had_ended and run.end():
            faults.append(f"it failed by itself: {run.said[-2000:]}")
        if hangs:
            faults.append(f"it hangs: {run.said[-2000:]}")
            run.process.send_signal(signal.SIGKILL)
        is_lost = hangs or (not had_ended and (run.end() != 0 or "going on" in run.said))
        if is_lost and not hangs:
            faults += _unnamed(rank, run.said)
            if resumed_on == "both":
                faults += _left_by(run)
                run = self._launched(str(number), division, resume=run.checkpoint.exists())
            bounds = _SAME if resumed_on == "both" or division == "layers" else ROUNDING
            if run.end():
                faults.append(f"it does not go on: {run.said[-2000:]}")
            elif not np.allclose(run.losses, whole[len(whole) - len(run.losses) :], **bounds):
                faults.append("other losses")
        faults += [*_left_by(run), *left_in_memory(shared)]
        shutil.rmtree(self._folder / str(number))
        return LossVerdict(
            *(number, division, rank, sent.name, round(moment_s, 3), had_checkpoint),
            *(round(seconds, 3) if is_lost else None, resumed_on, tuple(faults)),
        )

    def _launched(
        self, name: str, division: str, *, restarts: int = 0, resume: bool = False
    ) -> Launched:
        folder = self._folder / name
        (folder / TEMPORARY).mkdir(parents=True, exist_ok=True)
        more = ("--resume", str(folder / "run.ckpt")) if resume else ()
        options = (*DIVISIONS[division], *more)
        return Launched(
            folder, self._folder, options, restarts=restarts, start=self._start, through_memory=True
        )

    def _run_undisturbed(self, division: str) -> tuple[list[float], float, float]:
        """Losses, and the processor time until the first checkpoint and from there on."""
        for name in ("first", "second"):  # the first one measures links and compiles
            run = self._launched(f"{name}_{division}", division)
            run.wait_for_checkpoint()
            written_s = used_s = processor_s(run.process.pid)
            while run.runs:
                used_s = max(used_s, processor_s(run.process.pid))
                time.sleep(0.01)
            assert run.end() == 0, run.said
        return run.losses, written_s, used_s - written_s


def _send(process: int, sent: signal.Signals) -> None:
    try:
        os.kill(process, sent)
    except ProcessLookupError:
        return  # it has just ended


def _left_by(run: Launched) -> list[str]:
    """Processes and temporary files of a run that has ended."""
    processes = left_after(run.process.pid, time.monotonic() + _CHILDREN_S)
    files = (run.report.parent / TEMPORARY).iterdir()
    return [f"left {each}" for each in (*processes, *(path.name for path in files))]


def left_in_memory(earlier: Collection[Path]) -> list[str]:
    """Memory with a name that has come since, and that no process uses: others may run here, too.

    Processes map it by other names than it has, such as a semaphore before it got one.
    """
    new = {path: _number(path) for path in _SHARED.iterdir() if path not in earlier}
    used = {line.split()[4] for maps in Path("/proc").glob("[0-9]*/maps") for line in _lines(maps)}
    return [f"left {path}" for path, number in new.items() if number and number not in used]


def _number(file: Path) -> str:
    """Of the file's content, whatever it is called; nothing where it is gone."""
    try:
        return str(file.stat().st_ino)
    except FileNotFoundError:
        return ""


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:  # the process has ended
        return []


def _unnamed(rank: int, said: str) -> list[str]:
    """What is wrong with what the run said about a lost rank."""
    words = ("was ended by", "did not answer")
    is_named = any(f"rank {rank} {how}" in said for how in words)
    is_other = any(f"rank {1 - rank} {how}" in said for how in words)
    return [] if is_named and not is_other else [f"rank {rank} is not named: {said[-2000:]}"]


def main(path: Path, first: int, end: int, step: int) -> None:
    """Judge the runs of a range of numbers that a file of verdicts lacks."""
    import_everything()
    verdicts = Verdicts(path)
    with TemporaryDirectory() as folder:
        runs = LostRanks(Path(folder), started)
        for number in range(first, end, step):
            if number not in verdicts.losses:
                verdicts.add(verdict := runs.judged(number))
                sys.stdout.write(f"{verdict}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
