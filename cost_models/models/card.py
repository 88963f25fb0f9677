"""The card of a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.judging.metrics import metrics_of, noise_floor
from tvm_xengine.cost_models.models.adapted import AdaptedTrees
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees, held_out
from tvm_xengine.cost_models.models.model_file import TimePredictor


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
        "largest_flops": float(data.table.flops.max()),
        "held_out_families": asdict(metrics_of(data.time_us[rows], predicted, families)),
        "noise_floor": None if noise is None else asdict(noise),
        "hyper_parameters": asdict(model),
    }
