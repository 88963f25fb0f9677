"""``tvm-xengine launch``: a command in several processes of this machine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_xengine.cluster.launch import Failure, run_processes
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.run.processes.launched_options import (
    option_value,
    with_option,
    without_devices,
)
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.platform_file import read_platform

_LAUNCHED = "train"


def run_launch(command: Sequence[str], rank_timeout_s: float, restarts: int = 0) -> None:
    """Run the command in one process for each rank of its platform, and exit as the first that failed.

    Parameters
    ----------
    restarts
        How often the command is started again for the devices of the other processes, when some were
        lost; it resumes from its checkpoint.
    """
    if not command or command[0] != _LAUNCHED:
        found = f"found {command[0]!r}" if command else "found none"
        raise UsageError(f"launch takes the command train with its options, {found}; see --help")
    if "RANK" in os.environ:
        raise UsageError("this process was itself started by launch or torchrun; run train in it")
    file = option_value(command, "--platform")
    if file is None:
        raise UsageError(
            "launch needs a platform file whose devices have ranks: give --platform FILE"
        )
    checkpoint = option_value(command, "--checkpoint")
    if restarts and checkpoint is None:
        raise UsageError("--restarts goes on from a checkpoint: give train --checkpoint FILE")
    platform = read_platform(file)
    if platform.ranks == 1:
        raise UsageError(
            "all devices of the platform are on rank 0, so one process holds them: leave out launch, or"
            " give some devices `rank = 1` in the platform file"
        )
    every = set(platform.index)
    failed = _run(command, platform, rank_timeout_s)
    while failed is not None and failed.lost and restarts:
        restarts -= 1
        platform = platform.without_ranks(failed.lost)
        lost = every - set(platform.index)
        failed = _go_on(command, platform, lost, rank_timeout_s)
    if failed is not None:
        sys.exit(failed.code if failed.code > 0 else 128 - failed.code)


def _run(command: Sequence[str], platform: Platform, rank_timeout_s: float) -> Failure | None:
    arguments = ["-m", "tvm_xengine", *command]
    failed = run_processes(arguments, platform.ranks, timeout_s=rank_timeout_s)
    if failed is not None:
        _tell(failed)
    return failed


def _go_on(
    command: Sequence[str], platform: Platform, lost: Collection[str], rank_timeout_s: float
) -> Failure | None:
    """Run the command without the lost devices, from its checkpoint if it has written one."""
    checkpoint = option_value(command, "--checkpoint") or ""
    exists = Path(checkpoint).exists()
    where = f"from {checkpoint}" if exists else "from the beginning"
    names = ", ".join(device.name for device in platform.devices)
    print(f"tvm-xengine: going on {where} with {names}", file=sys.stderr)  # noqa: T201
    with TemporaryDirectory() as folder:
        file = Path(folder) / "platform.toml"
        platform.save(file)
        again = with_option(without_devices(command, lost), "--platform", str(file))
        again = with_option(again, "--resume", checkpoint) if exists else again
        if option_value(again, "--replicas") is not None:
            again = with_option(again, "--replicas", "auto")  # there are fewer devices now
        return _run(again, platform, rank_timeout_s)


def _tell(failed: Failure) -> None:
    how = (
        f"ended with exit code {failed.code}"
        if failed.code > 0
        else f"was ended by {_signal_name(-failed.code)}"
    )
    if failed.rank or failed.code < 0:  # else the first process has said it itself
        print(f"tvm-xengine: rank {failed.rank} {how}", file=sys.stderr)  # noqa: T201
    for rank in failed.lost if failed.code > 0 else ():
        print(f"tvm-xengine: rank {rank} did not answer, and was ended", file=sys.stderr)  # noqa: T201
    if failed.message:
        print(failed.message, file=sys.stderr)  # noqa: T201


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
