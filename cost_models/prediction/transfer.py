"""A model for a new device, from a known one and a few measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.judging.metrics import Metrics, metrics_of
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees, BoostedTreesPredictor
from tvm_xengine.cost_models.models.model import Prediction, Predictor
from tvm_xengine.cost_models.prediction.prior import correction_of
from tvm_xengine.scheduling.problem import CostSource, OpCost

if TYPE_CHECKING:
    from tvm_xengine.cost_models.models.model_file import ModelFile

_IS_NEW = "is_new_device"
_MOST_CANDIDATES = 2000
"""Bounds the table of distances between rows to 32 MB."""

_FARTHEST = 3.0
"""Distance from the mean, in standard deviations, that counts."""


@dataclass(frozen=True)
class TransferredPredictor:
    """Predicts for the new device."""

    pooled: BoostedTreesPredictor

    def predict(self, table: FeatureTable) -> Prediction:
        """Run times on the new device."""
        return self.pooled.predict(_with_device_column(table, np.ones(len(table))))


def transfer(model: BoostedTrees, source: Dataset, few: Dataset) -> TransferredPredictor:
    """Learn from all of `source` and the `few` kernels measured on the new device, pooled.

    A column says which device a row is of, and the few rows weigh as much as all others
    together; facts from measurements on three targets are in the README's cost model page.
    """
    repeats = max(1, len(source) // max(1, len(few)))
    rows = np.concatenate(
        [np.arange(len(source)), np.tile(np.arange(len(few)), repeats) + len(source)]
    )
    pooled = _pool(source, few)
    return TransferredPredictor(model.fit_point(pooled.take(rows)))


def device_names(data: Dataset) -> tuple[str, ...]:
    """What tells the devices of `data` apart, for each row: the target, or the fingerprint where
    all have one target.

    Targets are asked first, because another version of the code generator is another fingerprint,
    and no new device.
    """
    return data.targets if len(set(data.targets)) > 1 else data.devices


def other_devices(data: Dataset, name: str) -> tuple[Dataset, Dataset]:
    """Kernels of all other devices, and those of this one from sources that the others have."""
    mine = np.array([each == name for each in device_names(data)])
    known = {data.sources[row] for row in np.flatnonzero(~mine)}
    rows = [int(row) for row in np.flatnonzero(mine) if data.sources[row] in known]
    return data.take(np.flatnonzero(~mine)), data.take(rows)


def evaluate_transfer(
    model: BoostedTrees, source: Dataset, target: Dataset, counts: Sequence[int]
) -> dict[str, Metrics]:
    """Errors on a new device for some numbers of measurements, chosen actively and at random.

    The kernels of every second hash are judged and never chosen.
    """
    judged, others = _split(target)
    pool, test = target.take(others), target.take(judged)
    rows = {"no measurement": _judge(model.fit_point(source), test)}
    for name, measured in _measured(pool.table, counts, model.seed):
        rows[name] = _judge(transfer(model, source, pool.take(measured)), test)
    rows["all measured"] = _judge(model.fit_point(pool), test)
    return rows


def evaluate_correction(
    model: ModelFile, target: Dataset, counts: Sequence[int], seed: int = 0
) -> dict[str, Metrics]:
    """The same for a model whose data is not at hand, which the measured kernels correct."""
    judged, pool = _split(target)
    test = target.take(judged)
    symbols = tuple(str(row) for row in range(len(target)))
    prior = correction_of(model, symbols, target.devices, target.targets, target.table)

    def metrics_after(measured: NDArray[np.int_]) -> Metrics:
        known = {
            symbols[row]: OpCost(float(target.time_us[row]), source=CostSource.MEASURED)
            for row in measured
        }
        costs = prior.corrected({**prior.predicted, **known})
        time_us, lo_us, hi_us = (
            np.array([getattr(costs[symbols[row]], name) for row in judged])
            for name in ("compute_us", "lo_us", "hi_us")
        )
        return metrics_of(test.time_us, time_us, test.families, (lo_us, hi_us))

    rows = {"no measurement": metrics_after(pool[:0])}
    for name, measured in _measured(target.table.take(pool), counts, seed):
        rows[name] = metrics_after(pool[measured])
    return rows


def _split(target: Dataset) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows that are judged, those of every second hash, and those that may be measured."""
    judged = np.array([int(kernel, 16) % 2 == 0 for kernel in target.kernels])
    return np.flatnonzero(judged), np.flatnonzero(~judged)


def _measured(
    pool: FeatureTable, counts: Sequence[int], seed: int
) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """So many rows of the pool, chosen actively and at random, and what they are called."""
    rng = np.random.default_rng(seed)
    size = len(pool)
    for count in counts:
        yield f"{count} chosen", np.asarray(choose_kernels(pool, count, seed), np.intp)
        yield f"{count} at random", rng.choice(size, size=min(count, size), replace=False)


def _judge(predictor: Predictor, test: Dataset) -> Metrics:
    answer = predictor.predict(test.table)
    interval = (answer.lo_us, answer.hi_us)
    return metrics_of(test.time_us, answer.time_us, test.families, interval)


def choose_kernels(table: FeatureTable, count: int, seed: int = 0) -> list[int]:
    """Rows to measure on a new device, so that every kernel has one like it among them.

    Adds the row that lessens the sum of all distances to the nearest chosen row most (facility
    location, greedily; Nemhauser, Wolsey and Fisher, Mathematical Programming 1978). Rows that
    differ most from all others were worse than rows drawn at random: they stand for nothing but
    themselves. Of large tables a part is looked at, drawn at random.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(table), size=min(_MOST_CANDIDATES, len(table)), replace=False))
    distance = _distances(table.values[rows])
    nearest = np.full(len(rows), distance.max(initial=0.0) + 1.0)
    chosen: list[int] = []
    for _ in range(min(count, len(rows))):
        gain = np.maximum(nearest[:, None] - distance, 0.0).sum(axis=0)
        gain[chosen] = -1.0
        best = int(np.argmax(gain))
        chosen.append(best)
        nearest = np.minimum(nearest, distance[best])
    return [int(rows[place]) for place in chosen]


def _distances(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Between all pairs of rows, (rows, rows), each column in units of its spread."""
    spread = values.std(axis=0)
    moving = spread > 0
    points = (values[:, moving] - values[:, moving].mean(axis=0)) / spread[moving]
    points = np.clip(points, -_FARTHEST, _FARTHEST)
    squares = (points**2).sum(axis=1)
    return np.asarray(
        np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * points @ points.T, 0.0))
    )


def _pool(source: Dataset, few: Dataset) -> Dataset:
    tables = [
        _with_device_column(source.table, np.zeros(len(source))),
        _with_device_column(few.table, np.ones(len(few))),
    ]
    table = replace(
        tables[0],
        values=np.concatenate([t.values for t in tables]),
        work=np.concatenate([t.work for t in tables]),
        flops=np.concatenate([t.flops for t in tables]),
        moved_bytes=np.concatenate([t.moved_bytes for t in tables]),
    )
    return Dataset(
        table=table,
        time_us=np.concatenate([source.time_us, few.time_us]),
        noise_ratio=np.concatenate([source.noise_ratio, few.noise_ratio]),
        kernels=source.kernels + few.kernels,
        names=source.names + few.names,
        devices=source.devices + few.devices,
        targets=source.targets + few.targets,
        families=source.families + few.families,
        sources=source.sources + few.sources,
        rounds_us=source.rounds_us + few.rounds_us,
        workspace_bytes=np.concatenate([source.workspace_bytes, few.workspace_bytes]),
        energy_uj=np.concatenate([source.energy_uj, few.energy_uj]),
        hot_us=np.concatenate([source.hot_us, few.hot_us]),
    )


def _with_device_column(table: FeatureTable, is_new: NDArray[np.float64]) -> FeatureTable:
    return replace(
        table,
        names=(*table.names, _IS_NEW),
        values=np.concatenate([table.values, is_new[:, None]], axis=1),
    )
