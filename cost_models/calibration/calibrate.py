"""Time the sweep, and fit to it what predictions are off by on a machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from tvm.target import Target

from tvm_xengine.cost_models.calibration.calibration import Calibration, Evidence
from tvm_xengine.cost_models.calibration.sweep import CALL, PRODUCT, Sweep, sweep_of
from tvm_xengine.cost_models.features.added import feature_set
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.features.table import FeatureTable, table_of
from tvm_xengine.cost_models.measure.caches import COLD, HOT
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint, this_machine
from tvm_xengine.cost_models.measure.timers import IsolatedTimer, passing_libraries
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.cost_models.models.adapted_predictor import AdaptedPredictor
from tvm_xengine.cost_models.models.cold_calls import COLD_START, ColdCalls
from tvm_xengine.cost_models.models.processors import processor_of
from tvm_xengine.errors import MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.store.kernel_store import OnProgress

_AT_ONCE = 16
"""Kernels between two looks at the clock; so many share a library."""

_EFFORT = Effort(rounds=2, round_us=10_000.0)
"""Of each kernel, cold and hot."""

_LEAST_KERNELS = 8
"""Three numbers are fitted."""

Times = Mapping[str, tuple[float, float]]
"""Hot and cold time in microseconds by the key of the kernel."""


def time_sweep(
    target: Target,
    cache: Path,
    limit_s: float,
    on_progress: OnProgress | None = None,
) -> tuple[Sweep, Times]:
    """Time kernels of the sweep until all are done or the time is over.

    Making the kernels takes about half a minute of it. The first of them, enough for a fit, are always timed.

    Parameters
    ----------
    cache
        File of measurements: what is there is not timed again, so an interrupted sweep goes on.
    """
    start_s = time.monotonic()
    sweep = sweep_of(target, this_machine())
    measurements, device = MeasurementCache(cache), device_fingerprint(target)
    kernels = sweep.kernels
    for first in range(0, len(kernels), _AT_ONCE):
        if first and time.monotonic() - start_s > limit_s:
            break
        with TemporaryDirectory() as scratch:
            timer = IsolatedTimer(passing_libraries(Path(scratch)))
            for caches in (COLD, HOT):
                part = kernels[first : first + _AT_ONCE]
                effort = replace(_EFFORT, caches=caches)
                measure_kernels(part, measurements, effort=effort, timer=timer)
        if on_progress is not None:
            on_progress(min(len(kernels), first + _AT_ONCE), len(kernels), kernels[first].name)
    times = {}
    for kernel in kernels:
        hot = measurements.find(kernel.key, device, HOT)
        cold = measurements.find(kernel.key, device, COLD)
        if hot is not None and cold is not None:
            times[kernel.key] = (hot.compute_us, cold.compute_us)
    return sweep, times


def calibrate(predictor: AdaptedPredictor, share: float, sweep: Sweep, times: Times) -> Calibration:
    """What the times of a sweep say of this machine.

    Parameters
    ----------
    predictor, share
        The model, and its share on this machine.

    Raises
    ------
    MeasurementError
        When too few kernels could be timed.
    """
    samples = [kernel for kernel in sweep.samples if kernel.key in times]
    if len(samples) < _LEAST_KERNELS:
        raise MeasurementError(
            f"expected the times of at least {_LEAST_KERNELS} kernels, got {len(samples)}; give the sweep"
            " more time"
        )
    table = table_of([kernel_features(kernel) for kernel in samples], feature_set())
    cold_us = np.array([times[kernel.key][1] for kernel in samples])
    factor, cold, spread = fit_machine(predictor, share, table, cold_us)
    machine = this_machine()
    return Calibration(
        machine=machine.key,
        processor=processor_of(str(samples[0].target)),
        date=datetime.now(timezone.utc).date().isoformat(),
        rates=rates_of(sweep, times),
        factor=factor,
        cold=cold,
        spread=spread,
        kernels=tuple(kernel.function or kernel.key for kernel in sweep.kernels),
        evidence=Evidence.of(table, cold_us, [sweep.network[kernel.symbol] for kernel in samples]),
    )


def fit_machine(
    predictor: AdaptedPredictor,
    share: float,
    table: FeatureTable,
    cold_us: NDArray[np.float64],
) -> tuple[float, ColdCalls, float]:
    """The factor, what a call and its bytes cost beside it, and the spread of what is left.

    All three numbers are fitted at once, by robust least squares of logarithms: most kernels of a sweep
    are short, and say more of calls than of rates.
    """
    uncorrected = replace(predictor.shared, cold=ColdCalls(0.0, 0.0), caches=())
    plain = replace(predictor, factor=1.0, shared=uncorrected)
    hot_us, _ = plain.times_us(table, share)

    def residuals(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        factor, call_us, us_per_byte = map(float, np.exp(logarithms))
        made_us = factor * hot_us + ColdCalls(call_us, us_per_byte).extra_us(table)
        return np.asarray(np.log(made_us / cold_us), dtype=np.float64)

    start = np.log((1.0, *COLD_START))
    numbers = np.exp(least_squares(residuals, start, loss="soft_l1").x)
    factor, call_us, us_per_byte = map(float, numbers)
    cold = ColdCalls(call_us, us_per_byte)
    fitted = predictor.calibrated(factor, cold)
    errors = np.abs(np.log(cold_us / fitted.times_us(table, share)[0]))
    return factor, cold, float(np.quantile(errors, 0.8))


def rates_of(sweep: Sweep, times: Times) -> dict[str, float]:
    """What the machine does, from the probes and the fastest of all kernels."""
    rates: dict[str, float] = {}
    for name, kernel in sweep.probes.items():
        if kernel.key not in times:
            continue
        hot_us, cold_us = times[kernel.key]
        if name == CALL:
            rates |= {"call_us": hot_us, "cold_call_us": cold_us}
        elif name == PRODUCT:
            rates["product_gflop_s"] = _flops([kernel])[0] / hot_us / 1e3
        else:
            moved = sum(spec.size_bytes for spec in (*kernel.inputs, *kernel.outputs))
            rates[f"stream_{name}_gb_s"] = moved / hot_us / 1e3
    known = [kernel for kernel in sweep.kernels if kernel.key in times]
    speeds = [f / times[k.key][0] / 1e3 for f, k in zip(_flops(known), known, strict=True)]
    rates["most_gflop_s"] = max(speeds)
    return {name: float(f"{rate:.4g}") for name, rate in rates.items()}


def _flops(kernels: Sequence[DeviceKernel]) -> list[float]:
    return [kernel_features(kernel).flops for kernel in kernels]
