"""The card of a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.features.table import IS_LIBRARY, LIBRARY_VECTOR, FeatureTable
from tvm_xengine.cost_models.judging.metrics import Metrics, metrics_of, noise_floor
from tvm_xengine.cost_models.models.adapted import AdaptedTrees
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees, held_out
from tvm_xengine.cost_models.models.model_file import TimePredictor

_FEW_CALLS = 10
"""Fewer say little of a library's code; an operation or two may use it in a special case."""


def library_vectors_bytes(table: FeatureTable) -> list[float]:
    """Widths of the vectors that a library's code had in more than a few calls of a table, sorted."""
    if LIBRARY_VECTOR not in table.names:
        return []
    widths = table.column(LIBRARY_VECTOR)[table.column(IS_LIBRARY) > 0]
    found, counts = np.unique(widths, return_counts=True)
    return [float(width) for width in found[counts >= _FEW_CALLS]]


def make_card(
    model: BoostedTrees | AdaptedTrees, data: Dataset, fitted: TimePredictor
) -> dict[str, Any]:
    """Data, errors on held-out families with the noise floor, and ranges."""
    rows, typical_us, _ = held_out(model, data)
    predicted = fitted.mean_us(typical_us)
    families = [data.families[row] for row in rows]
    ranges = np.quantile(data.time_us, (0, 0.01, 0.5, 0.99, 1))
    noise = noise_floor(data.rounds_us, data.families)
    return {
        "kernels": len(data),
        "unstable_kernels": int((data.noise_ratio > 0.1).sum()),
        "targets": dict(Counter(data.targets)),
        "devices": dict(Counter(data.devices)),
        "sources": dict(Counter(data.sources)),
        "families": {
            family: sum(family in names for names in data.families)
            for family in data.all_families()
        },
        "time_us_quantiles": [float(f"{value:.4g}") for value in ranges],
        "library_vectors_bytes": library_vectors_bytes(data.table),
        "largest_flops": float(data.table.flops.max()),
        "held_out_families": _figures(metrics_of(data.time_us[rows], predicted, families)),
        "noise_floor": None if noise is None else _figures(noise),
        "hyper_parameters": asdict(model),
    }


def _figures(metrics: Metrics) -> dict[str, float]:
    """With digits that are the same on every processor."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in asdict(metrics).items()
    }
