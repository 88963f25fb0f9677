"""``tvm-xengine launch``: a command in several processes of this machine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tvm_xengine.cluster.launch import run_processes
from tvm_xengine.commands.usage import UsageError
from tvm_xengine.scheduling.platform_file import read_platform

_LAUNCHED = "train"


def run_launch(command: Sequence[str], rank_timeout_s: float) -> None:
    """Run the command in one process for each rank of its platform, and exit as the first that failed."""
    if not command or command[0] != _LAUNCHED:
        found = f"found {command[0]!r}" if command else "found none"
        raise UsageError(f"launch takes the command train with its options, {found}; see --help")
    if "RANK" in os.environ:
        raise UsageError("this process was itself started by launch or torchrun; run train in it")
    ranks = read_platform(_platform_file(command)).ranks
    if ranks == 1:
        raise UsageError(
            "all devices of the platform are on rank 0, so one process holds them: leave out launch, or"
            " give some devices `rank = 1` in the platform file"
        )
    failed = run_processes(["-m", "tvm_xengine", *command], ranks, timeout_s=rank_timeout_s)
    if failed is None:
        return
    rank, code, message = failed
    how = f"ended with exit code {code}" if code > 0 else f"was ended by {_signal_name(-code)}"
    if rank or code < 0:  # else the first process has said it itself
        print(f"tvm-xengine: rank {rank} {how}", file=sys.stderr)  # noqa: T201
    if message:
        print(message, file=sys.stderr)  # noqa: T201
    sys.exit(code if code > 0 else 128 - code)


def _platform_file(command: Sequence[str]) -> Path:
    for token, following in zip(command, [*command[1:], ""], strict=True):
        option, equals, value = token.partition("=")
        if option == "--platform" and (value or following):
            return Path(value if equals else following)
    raise UsageError("launch needs a platform file whose devices have ranks: give --platform FILE")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
