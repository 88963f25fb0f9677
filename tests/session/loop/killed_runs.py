"""Kills a training run again and again, resumes it, and compares its losses with a run in one go.

Run ``python -m tests.session.loop.killed_runs FOLDER --moments 200``. The step is compiled once; every run is
a fork of this process, so that a resumed run knows nothing but its checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import tvm_xengine as xe
from tvm_xengine.data.arrays import Data

_SAMPLES, _BATCH, _EPOCHS = 24, 4, 4
"""A checkpoint in every step, and several epochs, each in an order of its own."""

_LONGEST_S = 0.25
"""Runs are killed up to so long after their begin: about as long as all steps take."""


def compiled(cache: Path) -> xe.Step:
    """A step in one thread, because threads do not survive a fork."""
    platform = xe.Platform((xe.Device("cpu", "llvm -mcpu=native"),))
    return xe.compile(
        "lenet",
        batch_size=_BATCH,
        optimizer=xe.Adam(0.002),
        platform=platform,
        costs="roofline",
        time_limit_s=1.0,
        cache=cache,
    )


def data(step: xe.Step) -> Data:
    """Samples that the step takes."""
    drawn = np.random.default_rng(0)
    inputs = step.executable.interface.inputs
    image, labels = step.batch_names
    shape = (_SAMPLES, *inputs[image].shape[1:])
    values = {
        image: drawn.standard_normal(shape).astype("float32"),
        labels: drawn.integers(0, 10, _SAMPLES),
    }
    return Data(values, {})


def run(step: xe.Step, checkpoint: Path | None, log: Path) -> None:
    """Train to the end, from the checkpoint if there is one; a line for every loss."""
    saving = None if checkpoint is None else xe.CheckpointOptions(checkpoint, 1, resume=True)
    with log.open("a", encoding="utf-8") as lines:

        def note(progress: xe.FitProgress) -> None:
            lines.write(f"{progress.step} {progress.loss.hex()}\n")
            lines.flush()

        xe.fit(step, data(step), epochs=_EPOCHS, checkpoint=saving, on_progress=note)


def forked(work: Callable[[], None], kill_after_s: float | None) -> bool:
    """Do `work` in a fork; whether it was killed."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a run failed")
    return os.WIFSIGNALED(status)


def kill_while_writing(number: int, share: float) -> None:
    """Let checkpoint `number` from now on end the process, when a share of it is on disk."""
    opened, count = Path.open, itertools.count()

    def opening(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        file = opened(path, mode, *args, **options)
        if mode != "xb" or next(count) != number:
            return file

        def torn(content: bytes) -> None:
            os.write(file.fileno(), content[: int(share * len(content))])
            os.kill(os.getpid(), signal.SIGKILL)

        return contextlib.nullcontext(SimpleNamespace(write=torn))

    Path.open = opening  # type: ignore[method-assign]


def losses(log: Path) -> list[tuple[int, str]]:
    """Steps and losses of a log; a line that was cut off does not count."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    return [(int(step), loss) for step, loss in (line.split() for line in lines)]


def main() -> None:
    """Kill runs, and fail where a loss differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, help="default: in FOLDER")
    options = parser.parse_args()
    folder, drawn = options.folder, random.Random(options.seed)
    step = compiled(options.cache or folder / "measurements.jsonl")
    whole, log, checkpoint = folder / "whole.log", folder / "killed.log", folder / "run.ckpt"
    forked(lambda: run(step, None, whole), None)
    expected = dict(losses(whole))
    if len(expected) != _EPOCHS * _SAMPLES // _BATCH:
        raise SystemExit(f"the run in one go took {len(expected)} steps")
    killed = torn = finished = compared = 0
    while killed < options.moments:
        writing = killed % 2 == 1
        share, after_s = drawn.random(), drawn.uniform(0, _LONGEST_S)

        number = drawn.randrange(_EPOCHS)

        def work(writing: bool = writing, number: int = number, share: float = share) -> None:
            if writing:
                kill_while_writing(number, share)
            run(step, checkpoint, log)

        was_killed = forked(work, None if writing else after_s)
        killed, torn = killed + was_killed, torn + (was_killed and writing)
        found = losses(log)
        compared += len(found)
        if wrong := [one for one in found if expected[one[0]] != one[1]]:
            raise SystemExit(f"after {killed} kills {len(wrong)} losses differ: {wrong[0]}")
        log.unlink(missing_ok=True)
        if not was_killed:
            finished += 1
            checkpoint.unlink()
    print(f"killed {killed} (while writing {torn}) finished {finished} losses {compared} equal")  # noqa: T201


if __name__ == "__main__":
    main()
