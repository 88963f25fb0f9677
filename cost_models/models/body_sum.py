"""A kernel's time as the sum of those of its loop bodies, each learned by boosted trees.

What is fused with what differs from network to network, while the parts recur.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xgboost
from numpy.typing import NDArray

from tvm_xengine.cost_models.features.table import BODY_SLOTS, FeatureTable
from tvm_xengine.cost_models.models.model import CALL_US

_CONTEXT = (
    *("tensors", "nests", "depth", "plain_share", "automatic_share", "log_work"),
    *("log_touched_per_l1", "log_touched_per_l2", "log_touched_per_l3"),
    *("log_missed_l1", "log_missed_l2", "machine_vector_bytes", "machine_has_fma", "threads"),
    "is_new_device",
)
_LIBRARY = "library_"
"""Features of the whole kernel that tell something of each of its bodies."""

_ITERATION_US = 1e-3
"""The unit of a body's predicted rate, about a loop iteration; it only shifts the margin."""

_LEAST_SHARE = 1e-3
"""Keeps the second derivative from 0 for bodies that take no time."""


@dataclass(frozen=True)
class BodyRows:
    """The loop bodies of many kernels, one row each.

    Attributes
    ----------
    values
        (bodies, features).
    kernel
        Which kernel of the table a body belongs to, (bodies,).
    iterations
        How often it runs in one call, (bodies,).
    """

    values: NDArray[np.float64]
    kernel: NDArray[np.int_]
    iterations: NDArray[np.float64]
    kernels: int


def has_bodies(table: FeatureTable) -> bool:
    """Whether a table has features of single bodies."""
    return f"share_{BODY_SLOTS[0]}" in table.names


def body_rows(table: FeatureTable) -> BodyRows:
    """Take the bodies out of the features of kernels."""
    at = {name: number for number, name in enumerate(table.names)}
    first = f"_{BODY_SLOTS[0]}"
    parts = [name.removesuffix(first) for name in table.names if name.endswith(first)]
    context = [at[name] for name in at if name in _CONTEXT or _LIBRARY in name]
    values, kernel = [], []
    for slot in BODY_SLOTS:
        rows = np.flatnonzero(table.values[:, at[f"share_{slot}"]] > 0)
        columns = [*(at[f"{part}_{slot}"] for part in parts), *context]
        values.append(table.values[np.ix_(rows, np.array(columns))])
        kernel.append(rows)
    stacked = np.concatenate(values)
    iterations = np.exp2(stacked[:, parts.index("log_iterations")]) - 1
    return BodyRows(stacked, np.concatenate(kernel), iterations, len(table))


def fit_body_sum(
    bodies: BodyRows,
    time_us: NDArray[np.float64],
    weights: NDArray[np.float64],
    parameters: Mapping[str, object],
    trees: int,
) -> xgboost.Booster:
    """Learn the logarithm of each body's time per iteration from the times of whole kernels.

    Minimises the squared error of the logarithm of the sum. Its derivative by the logarithm of a
    body is the error times the body's share of the sum; the share stands for the second one, too.
    """
    log_time = np.log(time_us)

    def gradients(
        margin: NDArray[np.float32], _matrix: xgboost.DMatrix
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        each_us, total_us = _times_us(bodies, margin)
        share = each_us / total_us[bodies.kernel]
        error = (np.log(total_us) - log_time)[bodies.kernel]
        weight = weights[bodies.kernel]
        return weight * error * share, weight * np.maximum(share, _LEAST_SHARE)

    return xgboost.train(
        {**parameters, "base_score": 0.0, "disable_default_eval_metric": True},
        _matrix(bodies),
        num_boost_round=trees,
        obj=gradients,
    )


def sum_of_bodies_us(booster: xgboost.Booster, bodies: BodyRows) -> NDArray[np.float64]:
    """Times of whole kernels, (kernels,)."""
    return _times_us(bodies, booster.predict(_matrix(bodies), output_margin=True))[1]


def _times_us(
    bodies: BodyRows, margin: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    each_us = bodies.iterations * _ITERATION_US * np.exp(margin.astype(np.float64))
    sums = np.bincount(bodies.kernel, each_us, minlength=bodies.kernels)
    return each_us, np.asarray(CALL_US + sums, dtype=np.float64)


def _matrix(bodies: BodyRows) -> xgboost.DMatrix:
    return xgboost.DMatrix(bodies.values)
