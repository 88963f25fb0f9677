"""``tvm-xengine launch``: a command in several processes of this machine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_xengine.cluster.launch import Failure, Replaced, run_processes
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.run.processes.launched_options import (
    option_value,
    with_option,
    without_devices,
)
from tvm_xengine.errors import XEngineError
from tvm_xengine.kernels.threads.settings import usable_cores
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
            "launch needs a platform file whose devices have ranks or hosts: give --platform FILE"
        )
    checkpoint = option_value(command, "--checkpoint")
    if restarts and checkpoint is None:
        raise UsageError("--restarts goes on from a checkpoint: give train --checkpoint FILE")
    change = Change(Path(file), checkpoint)
    platform = read_platform(file)
    if platform.ranks == 1:
        raise UsageError(
            "all devices of the platform are on rank 0, so one process holds them: leave out launch, or"
            " give some devices `rank = 1` or another host in the platform file"
        )
    names = frozenset(platform.index)
    if platform.ranks > (cores := usable_cores()):
        _say(
            f"{platform.ranks} ranks share the cores of this machine ({cores}), so a step takes longer than"
            " predicted"
        )
    launched = _Launched(tuple(command), names, checkpoint, rank_timeout_s)
    outcome = launched.begin(platform, change)
    while outcome is not None:
        if isinstance(outcome, Failure):
            if not outcome.lost or not restarts:
                sys.exit(outcome.code if outcome.code > 0 else 128 - outcome.code)
            restarts -= 1
            platform = platform.without_ranks(outcome.lost)
        else:
            change = Change(Path(file), checkpoint)
            platform = read_platform(file)
        outcome = launched.go_on(platform, change)


@dataclass(frozen=True)
class _Launched:
    """A command whose devices change while it runs.

    Attributes
    ----------
    command
        As it was given.
    devices
        Names of the devices that it was given for.
    """

    command: tuple[str, ...]
    devices: frozenset[str]
    checkpoint: str | None
    rank_timeout_s: float

    def begin(self, platform: Platform, change: Change) -> Failure | Replaced | None:
        """Run the command as it is."""
        return self._run(self.command, platform, change)

    def go_on(self, platform: Platform, change: Change) -> Failure | Replaced | None:
        """Run it on other devices, from its checkpoint if it has written one."""
        exists = self.checkpoint is not None and Path(self.checkpoint).exists()
        where = f"from {self.checkpoint}" if exists else "from the beginning"
        names = ", ".join(device.name for device in platform.devices)
        _say(f"going on {where} with {names}")
        again = without_devices(self.command, self.devices - set(platform.index))
        if exists:
            again = with_option(again, "--resume", str(self.checkpoint))
        if option_value(again, "--replicas") is not None and self.devices != set(platform.index):
            again = with_option(again, "--replicas", "auto")
        with TemporaryDirectory() as folder:
            file = Path(folder) / "platform.toml"
            platform.save(file)
            return self._run(with_option(again, "--platform", str(file)), platform, change)

    def _run(
        self, command: Sequence[str], platform: Platform, change: Change
    ) -> Failure | Replaced | None:
        outcome = run_processes(
            ["-m", "tvm_xengine", *command],
            platform.ranks,
            hosts=platform.hosts,
            timeout_s=self.rank_timeout_s,
            is_replaced=change.is_due,
        )
        if isinstance(outcome, Failure):
            _tell(outcome)
        return outcome


def _say(sentence: str) -> None:
    print(f"tvm-xengine: {sentence}", file=sys.stderr)  # noqa: T201


class Change:
    """A change of a platform file since now, due once a checkpoint was written after it.

    The run then goes on with the devices that the file names. It is made before the file is read, so that no
    change is missed.
    """

    def __init__(self, file: Path, checkpoint: str | None) -> None:
        self._file, self._checkpoint = file, None if checkpoint is None else Path(checkpoint)
        self._known_ns = _written_ns(file)

    def is_due(self) -> bool:
        """Whether the run is to go on with the platform as it is in the file now."""
        changed_ns = _written_ns(self._file)
        if self._checkpoint is None or changed_ns in (self._known_ns, None):
            return False
        saved_ns = _written_ns(self._checkpoint)
        if saved_ns is None or changed_ns is None or saved_ns <= changed_ns:
            return False
        try:
            read_platform(self._file)
        except XEngineError as error:
            _say(f"the run goes on as it is: {error}")
            self._known_ns = changed_ns
            return False
        return True


def _written_ns(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


def _tell(failed: Failure) -> None:
    how = (
        f"ended with exit code {failed.code}"
        if failed.code > 0
        else f"was ended by {_signal_name(-failed.code)}"
    )
    if failed.rank or failed.code < 0:  # else the first process has said it itself
        _say(f"rank {failed.rank} {how}")
    for rank in failed.lost if failed.code > 0 else ():
        _say(f"rank {rank} did not answer, and was ended")
    if failed.message:
        print(failed.message, file=sys.stderr)  # noqa: T201


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
