"""Gradient boosted trees that predict the rate at which a kernel works, with an interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xgboost
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset import Dataset
from tvm_xengine.cost_models.feature_table import FeatureTable
from tvm_xengine.cost_models.model import CALL_US, Prediction
from tvm_xengine.errors import InvalidDatasetError

SIZE_LIMITS_US = (20.0, 500.0)
"""Intervals are calibrated apart for kernels that are predicted shorter, between and longer."""

_FEW_KERNELS = 300
_MOST_FOLDS = 6
_NOISE_RATIO = 0.05
_RATE_MARGIN = 1.0


@dataclass(frozen=True)
class BoostedTrees:
    """XGBoost on the logarithm of time / work, as an ensemble of bootstrap samples.

    Trees cannot extrapolate, but rates vary within bounds however large a kernel is, so large
    kernels can be predicted from small ones. The interval is a locally weighted split-conformal
    one (Lei et al., JASA 2018, section 5.2): residuals of families that were held out, divided
    by the ensemble's disagreement.

    Attributes
    ----------
    coverage
        Share of kernels of unseen network families whose time the interval should hold.
    """

    members: int = 5
    trees: int = 300
    learning_rate: float = 0.06
    depth: int = 7
    coverage: float = 0.8
    seed: int = 0
    name: str = "boosted trees"

    def fit(self, data: Dataset) -> BoostedTreesPredictor:
        """Learn, holding out one family after the other to calibrate the interval.

        Raises
        ------
        InvalidDatasetError
            When a label is not a positive number.
        """
        if not (np.isfinite(data.time_us) & (data.time_us > 0)).all():
            bad = [name for name, t in zip(data.names, data.time_us, strict=True) if not t > 0]
            raise InvalidDatasetError(f"expected times > 0, found others for {bad[:5]}")
        uncalibrated = self._ensemble(data)
        return replace(uncalibrated, widths=self._calibrate(data, uncalibrated))

    def fit_point(self, data: Dataset) -> BoostedTreesPredictor:
        """The same without calibration: its intervals mean nothing."""
        return self._ensemble(data)

    def _ensemble(self, data: Dataset) -> BoostedTreesPredictor:
        rates = np.log(data.time_us / data.table.work)
        rng = np.random.default_rng(self.seed)
        boosters = []
        for member in range(self.members):
            rows = rng.integers(len(data), size=len(data)) if self.members > 1 else slice(None)
            boosters.append(self._boost(data, rates, rows, member))
        low, high = np.quantile(rates, (0.01, 0.99))
        return BoostedTreesPredictor(
            feature_set=data.table.feature_set,
            feature_names=data.table.names,
            boosters=tuple(boosters),
            rate_limits=(float(low) - _RATE_MARGIN, float(high) + _RATE_MARGIN),
            disagreement_floor=0.02,
            widths=(1.0, 1.0, 1.0),
        )

    def _boost(
        self,
        data: Dataset,
        rates: NDArray[np.float64],
        rows: NDArray[np.int_] | slice,
        member: int,
    ) -> xgboost.Booster:
        weights = 1.0 / (_NOISE_RATIO**2 + np.minimum(data.noise_ratio, 0.5) ** 2)
        matrix = xgboost.DMatrix(
            data.table.values[rows], label=rates[rows], weight=(weights / weights.mean())[rows]
        )
        parameters = {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "max_depth": self.depth if len(data) >= _FEW_KERNELS else 4,
            "learning_rate": self.learning_rate,
            "subsample": 0.8,
            "colsample_bytree": 0.5,
            "min_child_weight": 3,
            "seed": self.seed + member,
            "nthread": 1,
        }
        return xgboost.train(parameters, matrix, num_boost_round=self.trees)

    def _calibrate(
        self, data: Dataset, fitted: BoostedTreesPredictor
    ) -> tuple[float, float, float]:
        predicted, disagreement = held_out(replace(self, trees=self.trees // 2), data)
        residuals = np.abs(np.log(data.time_us / predicted))
        scaled = residuals / (disagreement + fitted.disagreement_floor)
        bins = _size_bins(predicted)
        everywhere = float(np.quantile(scaled, self.coverage))
        widths = [
            float(np.quantile(scaled[bins == k], self.coverage))
            if (bins == k).sum() >= 50
            else everywhere
            for k in range(len(SIZE_LIMITS_US) + 1)
        ]
        return (widths[0], widths[1], widths[2])


@dataclass(frozen=True)
class BoostedTreesPredictor:
    """Fitted `BoostedTrees`.

    Attributes
    ----------
    rate_limits
        Logarithms between which predictions are kept.
    disagreement_floor
        Added to the standard deviation of the ensemble.
    widths
        Half width of the interval, in units of disagreement, for short, middle and long kernels.
    """

    feature_set: str
    feature_names: tuple[str, ...]
    boosters: tuple[xgboost.Booster, ...]
    rate_limits: tuple[float, float]
    disagreement_floor: float
    widths: tuple[float, float, float]

    def predict(self, table: FeatureTable) -> Prediction:
        """Run times of kernels.

        Raises
        ------
        InvalidDatasetError
            When the features are not those that were learned from.
        """
        rate, disagreement = self.rates(table)
        time_us = np.maximum(table.work * np.exp(rate), CALL_US)
        width = np.array(self.widths)[_size_bins(time_us)]
        factor = np.exp(width * (disagreement + self.disagreement_floor))
        return Prediction(time_us, np.maximum(time_us / factor, 0.0), time_us * factor)

    def rates(self, table: FeatureTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Logarithm of time / work, and how far the members of the ensemble disagree on it."""
        if (table.feature_set, table.names) != (self.feature_set, self.feature_names):
            raise InvalidDatasetError(
                f"the model was trained on {len(self.feature_names)} features of"
                f" {self.feature_set}, and got {len(table.names)} of {table.feature_set};"
                " train it again"
            )
        matrix = xgboost.DMatrix(table.values)
        each = np.array([booster.predict(matrix) for booster in self.boosters], dtype=np.float64)
        return np.clip(each.mean(axis=0), *self.rate_limits), each.std(axis=0)


def held_out(model: BoostedTrees, data: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each kernel as predicted, with disagreement, by a model that knows none of its families."""
    predicted = np.zeros(len(data))
    disagreement = np.zeros(len(data))
    for train, test in family_folds(data, _MOST_FOLDS):
        part = data.take(test)
        rate, disagreement[test] = model.fit_point(data.take(train)).rates(part.table)
        predicted[test] = np.maximum(part.table.work * np.exp(rate), CALL_US)
    return predicted, disagreement


def family_folds(
    data: Dataset, most: int | None = None
) -> Iterator[tuple[NDArray[np.int_], NDArray[np.int_]]]:
    """(train, test) rows, so that no tested kernel occurs in a family that was learned from.

    A kernel that occurs in several families is tested in the first fold that has one of them.

    Parameters
    ----------
    most
        Families are put together until there are no more folds than this; None keeps each apart.
    """
    groups = _groups(data, most)
    rows = np.arange(len(data))
    done = np.zeros(len(data), dtype=bool)
    for group in groups:
        inside = np.array([bool(group.intersection(families)) for families in data.families])
        test = inside & ~done
        done |= inside
        if test.any() and (~inside).any():
            yield rows[~inside], rows[test]
        elif test.any():
            # One family only: halves of it, so that at least the kernels are apart.
            half = rows % 2 == 0
            yield rows[half], rows[~half]
            yield rows[~half], rows[half]
            return


def _groups(data: Dataset, most: int | None) -> Sequence[set[str]]:
    sizes = {
        family: sum(family in families for families in data.families)
        for family in data.all_families()
    }
    count = len(sizes) if most is None else min(most, len(sizes))
    groups: list[set[str]] = [set() for _ in range(count)]
    totals = [0] * count
    for family in sorted(sizes, key=lambda name: -sizes[name]):
        smallest = totals.index(min(totals))
        groups[smallest].add(family)
        totals[smallest] += sizes[family]
    return groups


def _size_bins(time_us: NDArray[np.float64]) -> NDArray[np.int_]:
    return np.digitize(time_us, SIZE_LIMITS_US)
