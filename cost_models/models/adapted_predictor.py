"""Predictions of a prior model, corrected by what was learned from measured kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xgboost
from numpy.typing import NDArray

from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.boosted_trees import BoostedTreesPredictor
from tvm_xengine.cost_models.models.cold_calls import ColdCalls
from tvm_xengine.cost_models.models.interval_widths import (
    BySize,
    size_bins,
    transfer_deviation,
    widened,
    with_interval,
)
from tvm_xengine.cost_models.models.model import CALL_US, Prediction
from tvm_xengine.cost_models.models.threads import most_threads, on_one_thread
from tvm_xengine.cost_models.models.whole_view import whole_view
from tvm_xengine.errors import InvalidDatasetError

Limits = tuple[float, float]
"""Of the logarithm of a correction."""


@dataclass(frozen=True)
class AdaptedPredictor:
    """Fitted `adapted.AdaptedTrees`.

    Attributes
    ----------
    machine, caches
        Boosters of the logarithms of the machine's factor, and of what is left with cold caches.
    machine_limits, caches_limits
        Between which their mean is kept.
    machines
        Number of machines that the labels are of; those of one processor count once.
    factor
        Of all times with hot caches, from a calibration of the machine that is asked about.
    disagreement_floor, widths, smearing
        As of `BoostedTreesPredictor`.
    """

    prior: BoostedTreesPredictor
    prior_digest: str
    feature_set: str
    feature_names: tuple[str, ...]
    machine: tuple[xgboost.Booster, ...]
    caches: tuple[xgboost.Booster, ...]
    machine_limits: Limits
    caches_limits: Limits
    cold: ColdCalls
    machines: int = 1
    factor: float = 1.0
    disagreement_floor: float = 0.02
    widths: BySize = (1.0, 1.0, 1.0)
    smearing: BySize = (1.0, 1.0, 1.0)

    @property
    def share_elsewhere(self) -> float:
        """How much of the machine's factor is expected of a processor that nobody has labels of.

        The mean of the factors of the processors with labels, and of the prior's, which has none.
        """
        return self.machines / self.known_machines

    @property
    def known_machines(self) -> int:
        """With that of the prior."""
        return self.machines + 1

    def elsewhere(self) -> Elsewhere:
        """What this model says of a processor that nobody has labels of."""
        return Elsewhere(self)

    def predict(self, table: FeatureTable, share: NDArray[np.float64] | float = 1.0) -> Prediction:
        """Run times of kernels.

        Parameters
        ----------
        share
            Of the machine's factor, (rows,) or one for all: 1 on the machines of the labels, 0 on the
            prior's.

        Raises
        ------
        InvalidDatasetError
            When the features are not those that were learned from.
        """
        typical_us, disagreement = self.times_us(table, share)
        spread = disagreement + self.disagreement_floor
        return with_interval(typical_us, self.mean_us(typical_us), spread, self.widths)

    def leaves(self, table: FeatureTable) -> NDArray[np.int_]:
        """Where kernels fall in the prior's trees, (kernels, trees): like ones often together."""
        return self.prior.leaves(table)

    def mean_us(self, typical_us: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean times of kernels whose typical times these are."""
        return np.asarray(typical_us * np.array(self.smearing)[size_bins(typical_us)])

    def times_us(
        self, table: FeatureTable, share: NDArray[np.float64] | float = 1.0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Typical times, and how far the members disagree on their logarithms."""
        prior_us, prior_spread = self.prior.times_us(table)
        if not set(self.feature_names) <= set(table.names):
            raise InvalidDatasetError(
                f"the model was trained on {len(self.feature_names)} features of {self.feature_set}, and"
                f" got {len(table.names)} of {table.feature_set}; train it again"
            )
        matrix = xgboost.DMatrix(corrected_view(table.only(self.feature_names)))
        machine, machine_spread = _mean(self.machine, matrix, self.machine_limits)
        caches, caches_spread = _mean(self.caches, matrix, self.caches_limits)
        hot_us = self.factor * prior_us * np.exp(share * machine)
        typical_us = (hot_us + self.cold.extra_us(table)) * np.exp(caches)
        spread = np.sqrt(prior_spread**2 + (share * machine_spread) ** 2 + caches_spread**2)
        return np.maximum(typical_us, CALL_US), np.asarray(spread, dtype=np.float64)


@dataclass(frozen=True)
class Elsewhere:
    """A model of processors with labels, asked about one without."""

    model: AdaptedPredictor

    def predict(self, table: FeatureTable) -> Prediction:
        """Run times of kernels there."""
        answer = self.model.predict(table, self.model.share_elsewhere)
        return widened(answer, np.full(len(table), transfer_deviation(self.model.known_machines)))


def corrected_view(table: FeatureTable) -> NDArray[np.float64]:
    """The features that corrections are learned from: as on one thread, as the labels are."""
    return whole_view(on_one_thread(table) if most_threads(table) > 1 else table)


def _mean(
    boosters: tuple[xgboost.Booster, ...], matrix: xgboost.DMatrix, limits: Limits
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of the members, (rows,) each; zeros where there are none."""
    if not boosters:
        return np.zeros(matrix.num_row()), np.zeros(matrix.num_row())
    each = np.array([booster.predict(matrix) for booster in boosters], dtype=np.float64)
    return np.clip(each.mean(axis=0), *limits), each.std(axis=0)
