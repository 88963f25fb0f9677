"""The schedules that tuning has found, kept on disk and shared by all networks."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tvm import s_tir, tirx
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from tvm_xengine.checks.documents import typed
from tvm_xengine.files.append_only import AppendOnlyFile
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.relax_ir.kernel_attributes import kernel_hash

_logger = logging.getLogger(__name__)

_FILE = "schedules.jsonl"


@dataclass(frozen=True)
class TunedSchedule:
    """The result of tuning a kernel for a target.

    Attributes
    ----------
    kernel, target
        :func:`kernel_hash` of the kernel, and what it was tuned for.
    kind
        What kernels are called that may take over each other's schedules.
    trace
        MetaSchedule's trace as JSON text; empty where our own rules are the faster.
    rule_us, tuned_us
        Run time with our rules, and with the trace.
    trials
        How many schedules were tried.
    origin
        ``search``, or the `kernel` whose trace this is.
    machine
        What it was timed on, in words; empty where that is unknown.
    """

    kernel: str
    target: str
    kind: str
    trace: str
    rule_us: float
    tuned_us: float
    trials: int
    origin: str
    machine: str = ""

    @property
    def gain_ratio(self) -> float:
        """Time with the trace per time with our rules."""
        return self.tuned_us / self.rule_us if self.trace else 1.0


class TunedSchedules:
    """The schedules in a folder; what is added is on disk at once.

    Parameters
    ----------
    folder
        Made when the first schedule is added.

    Raises
    ------
    NotADirectoryError
        If there is a file of that name.
    """

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        self._file = AppendOnlyFile(folder / _FILE)
        self._by_kernel: dict[tuple[str, str], TunedSchedule] = {}
        for found in self._file.read(_parse):
            self._by_kernel[found.kernel, found.target] = found

    def __len__(self) -> int:
        return len(self._by_kernel)

    def find(self, func: tirx.PrimFunc, target: Target) -> TunedSchedule | None:
        """What is known of this very kernel."""
        return self._by_kernel.get((kernel_hash(func), str(target)))

    def relatives(self, kind: str, target: Target) -> Sequence[TunedSchedule]:
        """Schedules better than our rules' for kernels of a kind, the greatest gain first."""
        same = [
            found
            for found in self._by_kernel.values()
            if found.kind == kind and found.target == str(target) and found.trace
        ]
        return sorted(same, key=lambda found: found.gain_ratio)

    def add(self, found: TunedSchedule) -> None:
        """Keep a schedule; it replaces what was known of the kernel."""
        self._by_kernel[found.kernel, found.target] = found
        self._file.append(asdict(found))


def kernel_kind(name: str) -> str:
    """The kind of a kernel: its name without the numbers that tell equal names apart."""
    return re.sub(r"\d+", "", name)


def trace_of(sch: s_tir.Schedule) -> str:
    """How a schedule was made, as JSON text."""
    return json.dumps(sch.trace.as_json(), default=_plain)


def scheduled_by(trace: str, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel with the loops that a trace makes; tiles that do not divide them are made to fit.

    Raises
    ------
    RuntimeError
        When the trace is for loops of another form.
    """
    sch = s_tir.Schedule(func, error_render_level="none", debug_mask="none")
    Trace.apply_json_to_schedule(json.loads(trace), sch)
    return sch.mod["main"]


def prepare_tuned(
    func: tirx.PrimFunc, target: Target, name: str, tuned: TunedSchedules | None
) -> DeviceKernel:
    """The generated kernel, with its tuned schedule where one is known that is faster."""
    found = None if tuned is None else tuned.find(func, target)
    if found is None or not found.trace:
        return prepare_kernel(func, target, name)
    trace = found.trace
    try:
        return prepare_kernel(
            func,
            target,
            name,
            schedule=lambda kernel, _: scheduled_by(trace, kernel),
        )
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        # A trace that was damaged, or written by another version; TVM raises any of these.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        _logger.warning("the tuned schedule of %s is not used: %s", name, reason)
        return prepare_kernel(func, target, name)


def _plain(number: tirx.IntImm | tirx.FloatImm) -> int | float:
    value: int | float = number.value
    return value


def _parse(row: dict[str, object]) -> TunedSchedule:
    return typed(TunedSchedule, row)
