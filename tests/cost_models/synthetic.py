"""Made-up kernels whose times follow a known law."""

from __future__ import annotations

import numpy as np

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.features.table import FEATURE_SET, FeatureTable

NAMES = ("lanes", "stride", "depth", "machine_vector_bytes", "threads")


def synthetic(rows: int, seed: int = 0, slowdown: float = 1.0, families: int = 6) -> Dataset:
    """The time per unit of work depends on lanes and stride, with 3 % of noise."""
    rng = np.random.default_rng(seed)
    lanes = rng.choice((1.0, 4.0, 8.0, 16.0), rows)
    stride = rng.choice((0.0, 1.0, 64.0, 4096.0), rows)
    depth = rng.integers(1, 6, rows).astype(float)
    work = np.exp(rng.uniform(5, 15, rows))
    rate = 0.1 / lanes * (1 + 0.5 * np.log1p(stride)) * np.where(depth > 3, 1.3, 1.0)
    time_us = slowdown * work * rate * np.exp(0.03 * rng.standard_normal(rows))
    values = np.stack([lanes, stride, depth, np.full(rows, 32.0), np.ones(rows)], axis=1)
    return Dataset(
        table=FeatureTable(FEATURE_SET, NAMES, values, work, 2 * work, 8 * work),
        time_us=time_us,
        noise_ratio=np.full(rows, 0.03),
        kernels=tuple(f"{value:016x}" for value in rng.integers(2**62, size=rows)),
        names=tuple(f"kernel{k}" for k in range(rows)),
        devices=("slow" if slowdown > 1 else "fast",) * rows,
        targets=("llvm",) * rows,
        families=tuple((f"family{k % families}",) for k in range(rows)),
        sources=("tir",) * rows,
        rounds_us=tuple((t, t * 1.02) for t in time_us),
        workspace_bytes=np.zeros(rows),
        energy_uj=np.zeros(rows),
    )
