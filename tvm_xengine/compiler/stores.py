"""Stores that persist between runs: measurements, compiled kernels, tuned schedules."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_xengine.compiler.options import CompileOptions
from tvm_xengine.cost_models.measure.measurements import MeasurementCache, default_cache_path
from tvm_xengine.kernels.store.kernel_store import KernelStore
from tvm_xengine.kernels.store.tuned import TunedSchedules


@dataclass(frozen=True)
class Stores:
    """Measurements, compiled kernels and, optionally, tuned schedules."""

    measurements: MeasurementCache
    kernels: KernelStore
    tuned: TunedSchedules | None = None

    @classmethod
    def open(cls, options: CompileOptions | None = None) -> Stores:
        """The stores that `options` name, the user's own by default."""
        options = options or CompileOptions()
        path = options.measurements or default_cache_path()
        tuned = None if options.tuned is None else TunedSchedules(options.tuned)
        measurements = MeasurementCache(path, must_write=options.measurements is not None)
        return cls(measurements, KernelStore(path.parent / "kernels"), tuned)
