"""The times of a label as measurements of a dataset."""

from __future__ import annotations

import statistics

from tvm_xengine.cost_models.dataset.dataset import DatasetFolder, KernelRecord
from tvm_xengine.cost_models.labels.label_file import Label
from tvm_xengine.cost_models.measure.caches import COLD, HOT
from tvm_xengine.cost_models.measure.measurements import Measurement


def add_times(folder: DatasetFolder, record: KernelRecord, label: Label) -> None:
    """Add the measurements of a kernel, one for each kind of caches."""
    for caches, times_us in ((COLD, label.cold_us), (HOT, label.hot_us)):
        if times_us:
            folder.measurements.add(
                Measurement(
                    kernel=record.kernel,
                    device=record.device,
                    name=record.name,
                    compute_us=statistics.median(times_us),
                    lo_us=min(times_us),
                    hi_us=max(times_us),
                    clock=label.clock,
                    rounds_us=tuple((us,) for us in times_us),
                    machine=record.machine,
                    caches=caches,
                )
            )
