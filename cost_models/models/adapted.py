"""A model that begins from what another one learned elsewhere, and learns what differs here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import xgboost
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.dataset.label_weights import weights_of
from tvm_xengine.cost_models.models.adapted_predictor import (
    AdaptedPredictor,
    Corrections,
    Limits,
)
from tvm_xengine.cost_models.models.boosted_trees import check_times, held_out
from tvm_xengine.cost_models.models.cold_calls import ColdCalls, fit_cold_calls
from tvm_xengine.cost_models.models.interval_widths import DIGITS, calibrated
from tvm_xengine.cost_models.models.model_file import PRIOR_MODEL, digest_of, prior_predictor
from tvm_xengine.cost_models.models.whole_view import corrected_view

_LEAST_HOT_SHARE = 0.5
"""Of a cold time, where the hot one was not measured: colder caches rarely double a time."""

_LIMITS = (0.01, 0.99)
"""Quantiles of learned corrections beyond which none goes."""

_LEAST_OWN = 100
"""Kernels of a processor from which trees of its own are learned: a fifth of what a calibration times."""

Rows = NDArray[np.intp]
Target = NDArray[np.float64]


@dataclass(frozen=True)
class TreeShape:
    """How many trees learn a correction, and how deep they are."""

    trees: int
    depth: int


@dataclass(frozen=True)
class AdaptedTrees:
    """Corrections of a prior model, learned from measured kernels.

    The time with hot caches is that of the prior times a factor: what this machine does relative to
    the prior's on a kernel like this one. What cold caches cost is added (`ColdCalls`), and the
    sum is corrected once more. Both corrections are small trees on `whole_view`, shrunk to their
    mean, so a few hundred kernels are enough; trees on those alone err twice as much on families
    that they have not seen. Where the labels are of several processors, trees of each add what it does
    beyond all of them, so that one more processor takes nothing from the others.

    Attributes
    ----------
    members
        Models of each correction, which differ by what they draw at random.
    shared, own
        Trees for all processors, and for each; chosen on the families that are not locked.
    learning_rate, shrinkage
        Of both; chosen there, too.
    coverage
        Share of kernels of unseen families whose time the interval should hold.
    prior_digest
        Of the prior's file.
    """

    members: int = 3
    shared: TreeShape = TreeShape(400, 6)
    own: TreeShape = TreeShape(200, 4)
    learning_rate: float = 0.06
    shrinkage: float = 10.0
    coverage: float = 0.8
    seed: int = 0
    name: str = "adapted trees (shipped)"
    prior_digest: str = field(default_factory=lambda: digest_of(PRIOR_MODEL))

    def fit(self, data: Dataset) -> AdaptedPredictor:
        """Learn, holding out one family after the other to calibrate the interval.

        Raises
        ------
        InvalidDatasetError
            When a label is not a positive number.
        """
        fitted = self.fit_point(data)
        rows, predicted, disagreement = held_out(self, data)
        spread = disagreement + fitted.disagreement_floor
        widths, smearing = calibrated(data.time_us[rows], predicted, spread, self.coverage)
        return replace(fitted, widths=widths, smearing=smearing)

    def fit_point(self, data: Dataset) -> AdaptedPredictor:
        """The same without calibration: its intervals mean nothing."""
        check_times(data)
        prior = prior_predictor()
        prior_us, _ = prior.times_us(data.table)
        groups = _rows_by_processor(data)
        cold = _cold_calls(data, np.arange(len(data)))
        own_cold = {name: _cold_calls(data, rows) for name, rows in groups.items()}
        extra_us = cold.extra_us(data.table)
        for name, rows in groups.items():
            extra_us[rows] = own_cold[name].extra_us(data.table.take(rows))
        guessed = np.maximum(data.time_us - extra_us, _LEAST_HOT_SHARE * data.time_us)
        hot_us = np.where(np.isfinite(data.hot_us), data.hot_us, guessed)
        machine = _rounded(np.log(hot_us / prior_us))
        left = _rounded(np.log(data.time_us / (hot_us + extra_us)))
        view, weights = corrected_view(data.table), weights_of(data)
        shared = self._corrections(view, weights, (machine, left), cold, self.shared)
        matrix = xgboost.DMatrix(view)
        machine = _rounded(machine - shared.of_machine(matrix).mean)
        left = _rounded(left - shared.of_caches(matrix).mean)
        own = {
            name: self._corrections(
                view[rows], weights[rows], (machine[rows], left[rows]), own_cold[name], self.own
            )
            for name, rows in groups.items()
        }
        return AdaptedPredictor(
            prior=prior,
            prior_digest=self.prior_digest,
            feature_set=data.table.feature_set,
            feature_names=data.table.names,
            shared=shared,
            own=own,
            processors=tuple(sorted(set(data.processors))),
        )

    def _corrections(
        self,
        view: NDArray[np.float64],
        weights: NDArray[np.float64],
        targets: tuple[Target, Target],
        cold: ColdCalls,
        shape: TreeShape,
    ) -> Corrections:
        machine, caches = (self._boosters(view, weights, target, shape) for target in targets)
        return Corrections(machine, caches, _limits(targets[0]), _limits(targets[1]), cold)

    def _boosters(
        self,
        view: NDArray[np.float64],
        weights: NDArray[np.float64],
        target: Target,
        shape: TreeShape,
    ) -> tuple[xgboost.Booster, ...]:
        matrix = xgboost.DMatrix(view, label=target, weight=weights)
        parameters = {
            "objective": "reg:squarederror",
            "base_score": round(float(np.average(target, weights=weights)), DIGITS),
            "tree_method": "hist",
            "max_bin": 64,
            "max_depth": shape.depth,
            "learning_rate": self.learning_rate,
            "reg_lambda": self.shrinkage,
            "subsample": 0.8,
            "colsample_bytree": 0.6,
            "colsample_bynode": 0.4,
            "min_child_weight": 3,
            "nthread": 1,
        }
        return tuple(
            xgboost.train({**parameters, "seed": self.seed + member}, matrix, shape.trees)
            for member in range(self.members)
        )


def _rows_by_processor(data: Dataset) -> dict[str, Rows]:
    """The kernels of each processor that has enough to be learned apart; none where all are of one."""
    names = np.array(data.processors)
    if len(set(data.processors)) < 2:
        return {}
    groups = {name: np.flatnonzero(names == name) for name in sorted(set(data.processors))}
    return {name: rows for name, rows in groups.items() if len(rows) >= _LEAST_OWN}


def _cold_calls(data: Dataset, rows: Rows) -> ColdCalls:
    """What cold caches cost in these rows, by those whose times with hot ones are known."""
    known = rows[np.isfinite(data.hot_us[rows])]
    if not len(known):
        return ColdCalls(0.0, 0.0)
    return fit_cold_calls(data.hot_us[known], data.time_us[known], data.table.take(known))


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.round(values, DIGITS), dtype=np.float64)


def _limits(target: Target) -> Limits:
    low, high = np.quantile(target, _LIMITS)
    return round(float(low), DIGITS), round(float(high), DIGITS)
