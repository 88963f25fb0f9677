"""Predictions of a prior model, corrected by what was learned from measured kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import xgboost
from numpy.typing import NDArray

from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.boosted_trees import BoostedTreesPredictor
from tvm_xengine.cost_models.models.cold_calls import ColdCalls
from tvm_xengine.cost_models.models.interval_widths import (
    BySize,
    means_of,
    transfer_deviation,
    widened,
    with_interval,
)
from tvm_xengine.cost_models.models.model import CALL_US, Prediction
from tvm_xengine.cost_models.models.whole_view import corrected_view
from tvm_xengine.errors import InvalidDatasetError

Limits = tuple[float, float]
"""Of the logarithm of a correction."""


class Estimate(NamedTuple):
    """Means of members and their standard deviations, (rows,) each."""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]


@dataclass(frozen=True)
class Corrections:
    """Two factors on times as small trees, and what cold caches cost.

    Attributes
    ----------
    machine, caches
        Boosters of the logarithms of the machine's factor, and of what is left with cold caches; their
        members differ by what they draw at random.
    machine_limits, caches_limits
        Between which the mean of the members is kept.
    """

    machine: tuple[xgboost.Booster, ...]
    caches: tuple[xgboost.Booster, ...]
    machine_limits: Limits
    caches_limits: Limits
    cold: ColdCalls

    def of_machine(self, matrix: xgboost.DMatrix) -> Estimate:
        """The logarithm of the machine's factor."""
        return _mean(self.machine, matrix, self.machine_limits)

    def of_caches(self, matrix: xgboost.DMatrix) -> Estimate:
        """The logarithm of what is left with cold caches."""
        return _mean(self.caches, matrix, self.caches_limits)


def _mean(
    members: tuple[xgboost.Booster, ...], matrix: xgboost.DMatrix, limits: Limits
) -> Estimate:
    """What members say together; zeros where there are none."""
    if not members:
        return Estimate(np.zeros(matrix.num_row()), np.zeros(matrix.num_row()))
    each = np.array([member.predict(matrix) for member in members], dtype=np.float64)
    return Estimate(np.clip(each.mean(axis=0), *limits), each.std(axis=0))


@dataclass(frozen=True)
class AdaptedPredictor:
    """Fitted `adapted.AdaptedTrees`.

    Attributes
    ----------
    shared
        What the processors with labels have in common.
    own
        What each of them does beyond that, by LLVM's name of it: trees that are added to the shared ones,
        and cold calls in place of theirs.
    processors
        Those that the labels are of.
    factor
        Of all times with hot caches, from a calibration of the machine that is asked about.
    disagreement_floor, widths, smearing
        As of `BoostedTreesPredictor`.
    """

    prior: BoostedTreesPredictor
    prior_digest: str
    feature_set: str
    feature_names: tuple[str, ...]
    shared: Corrections
    own: Mapping[str, Corrections] = field(default_factory=dict)
    processors: tuple[str, ...] = ()
    factor: float = 1.0
    disagreement_floor: float = 0.02
    widths: BySize = (1.0, 1.0, 1.0)
    smearing: BySize = (1.0, 1.0, 1.0)

    @property
    def share_elsewhere(self) -> float:
        """How much of the machine's factor is expected of a processor that nobody has labels of.

        The mean of the factors of the processors with labels, and of the prior's, which has none.
        """
        return 1.0 - 1.0 / self.known_machines

    @property
    def known_machines(self) -> int:
        """How many processors have labels, and that of the prior."""
        return max(1, len(self.processors)) + 1

    def on(self, processors: Sequence[str]) -> OnProcessors:
        """What this model says of kernels, each on one of these processors (LLVM's names)."""
        return OnProcessors(self, tuple(processors))

    def calibrated(self, factor: float, cold: ColdCalls) -> AdaptedPredictor:
        """The same with what a calibration says of a processor without labels."""
        return replace(self, factor=factor, shared=replace(self.shared, cold=cold))

    def predict(
        self,
        table: FeatureTable,
        share: NDArray[np.float64] | float = 1.0,
        processors: Sequence[str] = (),
    ) -> Prediction:
        """Run times of kernels.

        Parameters
        ----------
        share
            Of the machine's factor, (rows,) or one for all: 1 on the processors of the labels, 0 on the
            prior's.
        processors
            LLVM's name of that of each row; none where they are unknown.

        Raises
        ------
        InvalidDatasetError
            When the features are not those that were learned from.
        """
        typical_us, disagreement = self.times_us(table, share, processors)
        spread = disagreement + self.disagreement_floor
        return with_interval(typical_us, self.mean_us(typical_us), spread, self.widths)

    def leaves(self, table: FeatureTable) -> NDArray[np.int_]:
        """Where kernels fall in the prior's trees, (kernels, trees): like ones often together."""
        return self.prior.leaves(table)

    def mean_us(self, typical_us: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean times of kernels whose typical times these are."""
        return means_of(typical_us, self.smearing)

    def times_us(
        self,
        table: FeatureTable,
        share: NDArray[np.float64] | float = 1.0,
        processors: Sequence[str] = (),
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Typical times, and how far the members disagree on their logarithms."""
        prior_us, prior_spread = self.prior.times_us(table)
        if not set(self.feature_names) <= set(table.names):
            raise InvalidDatasetError(
                f"the model was trained on {len(self.feature_names)} features of {self.feature_set}, and"
                f" got {len(table.names)} of {table.feature_set}; train it again"
            )
        view = corrected_view(table.only(self.feature_names))
        matrix = xgboost.DMatrix(view)
        machine, machine_spread = self.shared.of_machine(matrix)
        caches, caches_spread = self.shared.of_caches(matrix)
        cold_us = self.shared.cold.extra_us(table)
        for name in sorted(self.own.keys() & set(processors)):
            rows, own = np.flatnonzero(np.array(processors) == name), self.own[name]
            matrix = xgboost.DMatrix(view[rows])
            for total, spread, more in (
                (machine, machine_spread, own.of_machine(matrix)),
                (caches, caches_spread, own.of_caches(matrix)),
            ):
                total[rows] += more.mean
                spread[rows] = np.hypot(spread[rows], more.spread)
            cold_us[rows] = own.cold.extra_us(table.take(rows))
        hot_us = self.factor * prior_us * np.exp(share * machine)
        typical_us = (hot_us + cold_us) * np.exp(caches)
        spread = np.sqrt(prior_spread**2 + (share * machine_spread) ** 2 + caches_spread**2)
        return np.maximum(typical_us, CALL_US), np.asarray(spread, dtype=np.float64)


@dataclass(frozen=True)
class OnProcessors:
    """A model that is asked about kernels on known processors, with labels or without.

    Attributes
    ----------
    processors
        Of each row that is asked about; none where they are unknown, which counts as with labels.
    """

    model: AdaptedPredictor
    processors: tuple[str, ...]

    def predict(self, table: FeatureTable) -> Prediction:
        """Run times of kernels there: less sure on a processor without labels."""
        answer = self.model.predict(table, self._share, self.processors)
        deviation = transfer_deviation(self.model.known_machines)
        return widened(answer, np.where(self._is_foreign(len(table)), deviation, 0.0))

    def times_us(self, table: FeatureTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Typical times, and how far the members disagree on their logarithms."""
        return self.model.times_us(table, self._share, self.processors)

    @property
    def _share(self) -> NDArray[np.float64] | float:
        foreign = self._is_foreign(len(self.processors))
        return np.where(foreign, self.model.share_elsewhere, 1.0) if len(foreign) else 1.0

    def _is_foreign(self, rows: int) -> NDArray[np.bool_]:
        if not self.processors or not self.model.processors:
            return np.zeros(rows, dtype=np.bool_)
        return ~np.isin(self.processors, self.model.processors)
