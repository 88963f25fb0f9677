"""Time kernels with little disturbance from other load on the machine."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tvm_xengine.cost_models.measure.measurements import (
    Measurement,
    MeasurementCache,
    MeasurementFailure,
    typical_us,
)
from tvm_xengine.cost_models.measure.sentinel import Sentinel, calm_rounds
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint
from tvm_xengine.cost_models.measure.timers import Timer, TimerHere
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import BoardLostError, MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels
from tvm_xengine.kernels.store.kernel_store import OnProgress


def measure_kernels(
    kernels: Sequence[DeviceKernel],
    cache: MeasurementCache,
    *,
    effort: Effort | None = None,
    on_progress: OnProgress | None = None,
    timer: Timer | None = None,
    on_compiled: OnProgress | None = None,
    on_board_lost: Callable[[MeasurementFailure], object] | None = None,
) -> dict[str, Measurement]:
    """Return the run time of each kernel, by its symbol, from the cache or measured.

    Kernels that run on one thread are timed by its CPU time, which other processes lengthen
    little; parallel ones by the wall clock, of which the shortest batch counts. Every kernel is
    timed in several rounds and the rounds go over all kernels in turn, because the noise of
    neighbouring rounds is alike. Rounds in which the machine was slower than in others do not
    count, and are made up for where the effort allows it. The cache knows every timing at once, so
    interrupting or killing the work loses none, and the next call times only the rounds that are
    missing.

    A kernel that cannot be timed is recorded as failed, has no measurement, and is not tried
    again; so is one that takes its board with it, which ends the work.

    Parameters
    ----------
    on_progress
        Called after every timing with the number of timings done, the number of all timings and
        the name of the kernel.
    timer
        Where to time; None means in this process.
    on_compiled
        The same for compilations.
    on_board_lost
        Called with what to remember of a kernel that took its board with it; None remembers it.
    """
    effort = effort or Effort()
    timer = timer or TimerHere()
    sessions = [
        session
        for kernel in distinct_kernels(kernels)
        if (session := _session(kernel, timer.device(kernel.target), cache, effort)) is not None
    ]
    missing = [one for one in sessions if one.missing_rounds(effort) > 0]
    try:
        if missing:
            timer.prepare([one.kernel for one in missing], on_compiled)
        _measure_in_turn(missing, cache, effort, timer, on_progress, on_board_lost or cache.add)
    finally:
        timer.close()
    found = {
        one.kernel.symbol: cache.find(one.kernel.key, one.device, effort.caches) for one in sessions
    }
    return {symbol: measurement for symbol, measurement in found.items() if measurement}


def _measure_in_turn(
    sessions: Sequence[_Session],
    cache: MeasurementCache,
    effort: Effort,
    timer: Timer,
    on_progress: OnProgress | None,
    on_board_lost: Callable[[MeasurementFailure], object],
) -> None:
    sentinel = timer.sentinel()
    done, total = 0, sum(one.missing_rounds(effort) for one in sessions)
    while wanted := [one for one in sessions if one.wants_round(effort, sentinel)]:
        total = max(total, done + len(wanted))
        for one in wanted:
            cache.add(timer.machine(one.kernel.target))
            try:
                cache.add(one.next_round(timer, sentinel, effort))
            except BoardLostError as error:
                on_board_lost(one.failure(str(error)))  # or it would end every run
                raise
            done += 1
            if on_progress is not None:
                on_progress(done, total, one.kernel.name)


def require_measured(
    kernels: Sequence[DeviceKernel], measured: Mapping[str, Measurement], cache: MeasurementCache
) -> None:
    """Raise MeasurementError, with the reason, when a kernel has no measurement."""
    for kernel in kernels:
        if kernel.symbol not in measured:
            failure = cache.find_failure(kernel.key, device_fingerprint(kernel.target))
            reason = failure.failed if failure else "it was not measured"
            raise MeasurementError(
                f"{reason}; plan with --costs predicted, or delete its line from the measurements"
                " to try again"
            )


@dataclass
class _Session:
    """The rounds of one kernel."""

    kernel: DeviceKernel
    device: str
    rounds_us: list[tuple[float, ...]] = field(default_factory=list)
    load_averages: list[float] = field(default_factory=list)
    sentinels_us: list[float] = field(default_factory=list)
    is_failed: bool = False

    def missing_rounds(self, effort: Effort) -> int:
        return effort.rounds - len(self.rounds_us)

    def wants_round(self, effort: Effort, sentinel: Sentinel | None) -> bool:
        """Whether rounds are missing, or too few of them were calm and more may be added."""
        if self.is_failed or self.missing_rounds(effort) > 0:
            return not self.is_failed
        if sentinel is None or self.missing_rounds(effort) <= -effort.extra_rounds:
            return False
        return len(calm_rounds(self.sentinels_us, sentinel.fastest_us)) < effort.rounds

    def failure(self, reason: str) -> MeasurementFailure:
        """What is remembered of a kernel that cannot be timed."""
        self.is_failed = True
        return MeasurementFailure(self.kernel.key, self.device, self.kernel.name, failed=reason)

    def next_round(
        self, timer: Timer, sentinel: Sentinel | None, effort: Effort
    ) -> Measurement | MeasurementFailure:
        """Time the kernel once more; the measurement covers all rounds so far."""
        before_us = 0.0 if sentinel is None else sentinel.time_us()
        try:
            batches_us = timer.time_us(self.kernel, effort)
        except MeasurementError as error:
            return self.failure(str(error))
        after_us = 0.0 if sentinel is None else sentinel.time_us()
        self.rounds_us.append(batches_us)
        self.load_averages.append(os.getloadavg()[0])
        self.sentinels_us.append(max(before_us, after_us))
        clock = timer.clock(self.kernel)
        typical = [typical_us(self.rounds_us[k], clock) for k in calm_rounds(self.sentinels_us)]
        return Measurement(
            kernel=self.kernel.key,
            device=self.device,
            name=self.kernel.name,
            compute_us=statistics.median(typical),
            lo_us=min(typical),
            hi_us=max(typical),
            clock=clock,
            rounds_us=tuple(self.rounds_us),
            load_averages=tuple(self.load_averages),
            sentinels_us=tuple(self.sentinels_us),
            machine=timer.machine(self.kernel.target).key,
            caches=effort.caches,
        )


def _session(
    kernel: DeviceKernel, device: str, cache: MeasurementCache, effort: Effort
) -> _Session | None:
    """What is known of a kernel; None when measuring it has failed before."""
    if cache.find_failure(kernel.key, device) is not None:
        return None
    session = _Session(kernel, device)
    if known := cache.find(kernel.key, device, effort.caches):
        session.rounds_us = list(known.rounds_us)
        session.load_averages = list(known.load_averages)
        unwatched = len(known.rounds_us) - len(known.sentinels_us)
        session.sentinels_us = [0.0] * unwatched + list(known.sentinels_us)
    return session
