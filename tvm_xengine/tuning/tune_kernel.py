"""Find the fastest schedule of one kernel: our rules', that of a relative, or one searched for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import s_tir, tirx
from tvm.target import Target

from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import MeasurementError, UnsupportedModuleError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.store.tuned import (
    TunedSchedule,
    TunedSchedules,
    kernel_kind,
    scheduled_by,
    trace_of,
)
from tvm_xengine.relax_ir.kernel_attributes import kernel_hash
from tvm_xengine.tuning.bench import Bench, BenchHere
from tvm_xengine.tuning.search import search

_logger = logging.getLogger(__name__)

_QUICK = Effort(rounds=1, round_us=6_000.0)
"""A few batches, to tell good schedules from bad ones."""

_CAREFUL = Effort(rounds=1, round_us=30_000.0)
"""The effort of ordinary measurements, before a schedule is taken."""

_WORTH_IT = 0.95
"""A schedule is taken when it needs no more than this share of our rules' time."""

_AS_GOOD_AS = 1.1
"""A relative's schedule ends the search when it gains nearly what it gained there."""

_MOST_WORKSPACE_BYTES = 64 * 1024
"""Temporary memory that a schedule may take although our rules' takes less."""

_TOLERANCE = 1e-4
"""Relative to the largest result: sums in another order differ by less in float32."""


@dataclass(frozen=True)
class _Candidate:
    trace: str
    time_us: float
    origin: str


def tune_kernel(
    func: tirx.PrimFunc,
    target: Target,
    name: str,
    tuned: TunedSchedules,
    trials: int,
    *,
    seed: int = 0,
    bench: Bench | None = None,
) -> TunedSchedule:
    """The fastest schedule of a kernel; it is stored in `tuned`, too.

    Schedules of relatives are tried first, and where none of them gains as much as it did there,
    MetaSchedule searches. A schedule must compute the numbers that our rules' code computes, and
    hardly take more temporary memory.

    Parameters
    ----------
    bench
        Where schedules are timed; None is this process.
    """
    judge = _Judge(func, target, name, bench or BenchHere())
    kind = kernel_kind(name)
    best = _Candidate("", judge.rule_us, "rule")
    tried = 0
    is_done = False
    for relative in tuned.relatives(kind, target)[: max(1, trials // 4)]:
        tried += 1
        time_us = judge.trace_us(relative.trace)
        if time_us is not None and time_us < best.time_us:
            best = _Candidate(relative.trace, time_us, relative.kernel)
        if time_us is not None and time_us / judge.rule_us <= _AS_GOOD_AS * relative.gain_ratio:
            is_done = True
            break
    if not is_done and trials > tried:
        best = _searched(func, target, trials - tried, judge, best, seed)
        tried = trials
    best = judge.confirmed(best)
    found = TunedSchedule(
        kernel=kernel_hash(func),
        target=str(target),
        kind=kind,
        trace=best.trace,
        rule_us=judge.rule_us,
        tuned_us=best.time_us,
        trials=tried,
        origin=best.origin,
        machine=judge.machine,
    )
    tuned.add(found)
    return found


def _searched(
    func: tirx.PrimFunc, target: Target, trials: int, judge: _Judge, best: _Candidate, seed: int
) -> _Candidate:
    """The best of what is proposed and what there is."""
    try:
        for sch, time_us in search(func, target, trials, judge.schedules_us, seed=seed):
            if time_us < best.time_us:
                best = _Candidate(trace_of(sch), time_us, "search")
    except UnsupportedModuleError as error:
        _logger.info("%s keeps our rules' loops: %s", judge.name, error)
    return best


class _Judge:
    """Times schedules of one kernel."""

    def __init__(self, func: tirx.PrimFunc, target: Target, name: str, bench: Bench) -> None:
        self._func = func
        self._target = target
        self._bench = bench
        self.name = name
        self._rule = prepare_kernel(func, target, name)
        self.machine = bench.machine(self._rule)
        self.rule_us = self._careful_us(self._rule)
        self._most_bytes = max(self._rule.workspace_bytes, _MOST_WORKSPACE_BYTES)

    def schedules_us(self, proposed: Sequence[s_tir.Schedule]) -> list[float | None]:
        """Run time of each proposed schedule, None where it is no good."""
        return self._times_us([sch.mod["main"] for sch in proposed])

    def trace_us(self, trace: str) -> float | None:
        """The same of a trace."""
        try:
            return self._times_us([scheduled_by(trace, self._func)])[0]
        except (RuntimeError, TypeError, ValueError) as error:
            _logger.info("%s cannot take over a schedule: %s", self.name, error)
            return None

    def confirmed(self, best: _Candidate) -> _Candidate:
        """The candidate if it computes the same and is faster when timed with care, else the rule."""
        rule = _Candidate("", self.rule_us, "rule")
        if not best.trace:
            return rule
        kernel = self._prepared(scheduled_by(best.trace, self._func))
        if not _agree(self._bench.outputs(self._rule), self._bench.outputs(kernel)):
            _logger.warning("%s: a schedule that computes something else is dropped", self.name)
            return rule
        rounds = [(self._careful_us(self._rule), self._careful_us(kernel)) for _ in range(3)]
        self.rule_us = min(rule_us for rule_us, _ in rounds)
        time_us = min(own_us for _, own_us in rounds)
        if time_us > _WORTH_IT * self.rule_us:
            return replace(rule, time_us=self.rule_us)
        return replace(best, time_us=time_us)

    def _careful_us(self, kernel: DeviceKernel) -> float:
        (time_us,) = self._bench.times_us([kernel], _CAREFUL)
        if time_us is None:
            raise MeasurementError(f"kernel {self.name} does not run on {self.machine}")
        return time_us

    def _times_us(self, scheduled: Sequence[tirx.PrimFunc]) -> list[float | None]:
        kernels = [self._good(func) for func in scheduled]
        good = [kernel for kernel in kernels if kernel is not None]
        times_us = iter(self._bench.times_us(good, _QUICK))
        return [None if kernel is None else next(times_us) for kernel in kernels]

    def _good(self, scheduled: tirx.PrimFunc) -> DeviceKernel | None:
        """The kernel of a schedule, None where there is none or it takes too much memory."""
        try:
            kernel = self._prepared(scheduled)
        except (RuntimeError, TypeError, ValueError, UnsupportedModuleError) as error:
            _logger.info("%s: a schedule does not work: %s", self.name, error)
            return None
        return kernel if kernel.workspace_bytes <= self._most_bytes else None

    def _prepared(self, scheduled: tirx.PrimFunc) -> DeviceKernel:
        return prepare_kernel(self._func, self._target, self.name, schedule=lambda *_: scheduled)


def _agree(expected: list[np.ndarray], found: list[np.ndarray]) -> bool:
    return all(
        bool(np.all(np.abs(b - a) <= _TOLERANCE * max(float(np.abs(a).max(initial=0.0)), 1e-6)))
        for a, b in zip(expected, found, strict=True)
    )
