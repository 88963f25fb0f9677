"""Gradient boosted trees that predict the rate of a kernel, with an interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import xgboost
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import RANDOM, Dataset
from tvm_xengine.cost_models.dataset.label_weights import weights_of
from tvm_xengine.cost_models.features.added import version_of
from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.body_sum import (
    body_rows,
    fit_body_sum,
    has_bodies,
    sum_of_bodies_us,
)
from tvm_xengine.cost_models.models.interval_widths import (
    BySize,
    calibrated,
    means_of,
    with_interval,
)
from tvm_xengine.cost_models.models.model import CALL_US, Prediction
from tvm_xengine.cost_models.models.threads import most_threads, on_one_thread, with_threads_us
from tvm_xengine.cost_models.models.whole_view import whole_view
from tvm_xengine.errors import InvalidDatasetError

_FEW_KERNELS = 300
"""With fewer kernels shallower trees were the better ones in the study that chose the settings."""

_MOST_FOLDS = 6
"""Of held-out families that calibrate intervals; more take longer to train."""

_RATE_MARGIN = 1.0
"""A predicted logarithmic rate leaves the range of the training data by at most this: a factor
of e."""

_MOST_BINS = 64
"""Of values of a feature; 256 take twice the time."""

_LEAVES_STEP = 4
"""Every fourth tree tells how alike two kernels are, in a quarter of the time of all."""

_LEAST_COLUMNS = 20
"""Features that each tree may choose from at least."""

_WHOLE_SHARE = 0.8
"""Of the view of whole kernels in an average: on held-out families the best of 0.5 to 1, both for
generated and for library kernels."""


@dataclass(frozen=True)
class BoostedTrees:
    """XGBoost on two views of a kernel, whose predictions are averaged as logarithms.

    One view is the kernel as a whole (`whole_view`): the logarithm of
    time / work. The other is the sum over its loop bodies (`body_sum`). Trees cannot
    extrapolate, but rates vary within bounds however large a kernel is, so large kernels can be
    predicted from small ones. The interval is a locally weighted split-conformal one (Lei et al.,
    JASA 2018, section 5.2): residuals of families that were held out, divided by the
    disagreement of the members.

    A model of logarithms predicts the typical time, which is below the mean, and times of kernels
    are added up; so predictions are multiplied by the mean of measured / predicted on held-out
    families (the smearing estimate of Duan, JASA 1983).

    Attributes
    ----------
    members
        Number of models of each view, which differ by what they draw at random.
    trees, learning_rate, depth
        Of the whole kernel's rate.
    body_trees, body_learning_rate, body_depth
        Of the rates of bodies.
    coverage
        Share of kernels of unseen network families whose time the interval should hold.
    """

    members: int = 2
    trees: int = 600
    learning_rate: float = 0.03
    depth: int = 7
    body_trees: int = 400
    body_learning_rate: float = 0.06
    body_depth: int = 7
    coverage: float = 0.8
    seed: int = 0
    name: str = "boosted trees"

    def sketched(self) -> BoostedTrees:
        """One member of half the trees that learn twice as fast: nearly as good, in a quarter of
        the time."""
        return replace(
            self,
            members=1,
            trees=self.trees // 2,
            learning_rate=2 * self.learning_rate,
            body_trees=self.body_trees // 2,
            body_learning_rate=2 * self.body_learning_rate,
        )

    def fit(self, data: Dataset) -> BoostedTreesPredictor:
        """Learn, holding out one family after the other to calibrate the interval.

        Raises
        ------
        InvalidDatasetError
            When a label is not a positive number.
        """
        fitted = self.fit_point(data)
        return self._calibrated(data, fitted)

    def fit_point(self, data: Dataset) -> BoostedTreesPredictor:
        """The same without calibration: its intervals mean nothing."""
        check_times(data)
        weights = weights_of(data)
        rates = np.log(data.time_us / data.table.work)
        matrix = xgboost.DMatrix(whole_view(data.table), label=rates, weight=weights)
        wholes = tuple(
            xgboost.train(self._parameters(member, data), matrix, num_boost_round=self.trees)
            for member in range(self.members)
        )
        parts: tuple[xgboost.Booster, ...] = ()
        if has_bodies(data.table):
            bodies = body_rows(data.table)
            parts = tuple(
                fit_body_sum(
                    bodies,
                    data.time_us,
                    weights,
                    self._body_parameters(member, data),
                    self.body_trees,
                )
                for member in range(self.members)
            )
        low, high = np.quantile(rates, (0.01, 0.99))
        return BoostedTreesPredictor(
            feature_set=data.table.feature_set,
            feature_names=data.table.names,
            wholes=wholes,
            parts=parts,
            rate_limits=(float(low) - _RATE_MARGIN, float(high) + _RATE_MARGIN),
            disagreement_floor=0.02,
            widths=(1.0, 1.0, 1.0),
            smearing=(1.0, 1.0, 1.0),
            most_threads=most_threads(data.table),
        )

    def _parameters(self, member: int, data: Dataset) -> dict[str, object]:
        few = _LEAST_COLUMNS / len(data.table.names)
        return {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "max_bin": _MOST_BINS,
            "max_depth": self.depth if len(data) >= _FEW_KERNELS else 4,
            "learning_rate": self.learning_rate,
            "subsample": 0.8,
            "colsample_bytree": min(1.0, max(0.6, few)),
            "colsample_bynode": min(1.0, max(0.4, few)),
            "min_child_weight": 3,
            "seed": self.seed + member,
            "nthread": 1,
        }

    def _body_parameters(self, member: int, data: Dataset) -> Mapping[str, object]:
        parameters = self._parameters(member, data) | {
            "max_depth": self.body_depth if len(data) >= _FEW_KERNELS else 4,
            "learning_rate": self.body_learning_rate,
            "min_child_weight": 1,
        }
        del parameters["objective"]
        return parameters

    def _calibrated(self, data: Dataset, fitted: BoostedTreesPredictor) -> BoostedTreesPredictor:
        # A sketch of the model errs a little more, so the interval is rather too wide.
        rows, predicted, disagreement = held_out(self.sketched(), data)
        floor = fitted.disagreement_floor
        widths, smearing = calibrated(
            data.time_us[rows], predicted, disagreement + floor, self.coverage
        )
        return replace(fitted, widths=widths, smearing=smearing)


@dataclass(frozen=True)
class BoostedTreesPredictor:
    """Fitted `BoostedTrees`.

    Attributes
    ----------
    wholes, parts
        Members that see whole kernels, and those that see their bodies.
    rate_limits
        Logarithms between which predictions of whole kernels are kept.
    disagreement_floor
        Added to the standard deviation of the members.
    widths
        Half width of the interval, in units of disagreement, for short, middle and long kernels.
    smearing
        Mean over typical time, for the same three.
    most_threads
        Of the kernels it has learned from; where that is one, the gain of more is calculated.
    """

    feature_set: str
    feature_names: tuple[str, ...]
    wholes: tuple[xgboost.Booster, ...]
    parts: tuple[xgboost.Booster, ...]
    rate_limits: tuple[float, float]
    disagreement_floor: float
    widths: BySize
    smearing: BySize
    most_threads: int

    def predict(self, table: FeatureTable) -> Prediction:
        """Run times of kernels.

        Raises
        ------
        InvalidDatasetError
            When the features are not those that were learned from.
        """
        typical_us, disagreement = self.times_us(table)
        spread = disagreement + self.disagreement_floor
        return with_interval(typical_us, self.mean_us(typical_us), spread, self.widths)

    def on(self, processors: Sequence[str]) -> BoostedTreesPredictor:
        """The same: it tells no processors apart."""
        return self

    def leaves(self, table: FeatureTable) -> NDArray[np.int_]:
        """Where kernels fall in every fourth tree, (kernels, trees): like ones often together."""
        matrix = xgboost.DMatrix(whole_view(self._known(table)))
        leaves = self.wholes[0].predict(matrix, pred_leaf=True)
        return np.asarray(leaves[:, ::_LEAVES_STEP], dtype=int)

    def mean_us(self, typical_us: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean times of kernels whose typical times these are."""
        return means_of(typical_us, self.smearing)

    def times_us(self, table: FeatureTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Typical times, and how far the members disagree on their logarithms."""
        table = self._known(table)
        if most_threads(table) > self.most_threads == 1:
            serial_us, disagreement = self.times_us(on_one_thread(table))
            return with_threads_us(serial_us, table), disagreement
        matrix = xgboost.DMatrix(whole_view(table))
        each = [
            np.log(table.work) + np.clip(booster.predict(matrix), *self.rate_limits)
            for booster in self.wholes
        ]
        shares = [1.0 / len(self.wholes)] * len(self.wholes)
        if self.parts:
            bodies = body_rows(table)
            each += [np.log(sum_of_bodies_us(booster, bodies)) for booster in self.parts]
            shares = [_WHOLE_SHARE * share for share in shares]
            shares += [(1 - _WHOLE_SHARE) / len(self.parts)] * len(self.parts)
        logarithms = np.array(each, dtype=np.float64)
        mean = np.average(logarithms, axis=0, weights=shares)
        return np.maximum(np.exp(mean), CALL_US), logarithms.std(axis=0)

    def _known(self, table: FeatureTable) -> FeatureTable:
        """The features that were learned from; others that a package adds are left out."""
        is_of_version = version_of(table.feature_set) == version_of(self.feature_set)
        if not is_of_version or not set(self.feature_names) <= set(table.names):
            raise InvalidDatasetError(
                f"the model was trained on {len(self.feature_names)} features of"
                f" {self.feature_set}, and got {len(table.names)} of {table.feature_set};"
                " train it again"
            )
        return table.only(self.feature_names)


class PointPredictor(Protocol):
    """A predictor that says apart what is typical, and how sure it is."""

    def times_us(self, table: FeatureTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Typical times, and how far its members disagree on their logarithms."""


class OfProcessors(Protocol):
    """What was learned of some processors."""

    def on(self, processors: Sequence[str]) -> PointPredictor:
        """What is said of kernels, each on one of these processors."""


class PointModel(Protocol):
    """A model that can learn without calibrating its intervals, which takes longest."""

    def fit_point(self, data: Dataset) -> OfProcessors:
        """Learn; its intervals mean nothing."""


def check_times(data: Dataset) -> None:
    """Check that every label is a time.

    Raises
    ------
    InvalidDatasetError
        When one is not a positive number.
    """
    is_time = np.isfinite(data.time_us) & (data.time_us > 0)
    if not is_time.all():
        bad = [name for name, good in zip(data.names, is_time, strict=True) if not good]
        raise InvalidDatasetError(f"expected times > 0, found others for {bad[:5]}")


def held_out(
    model: PointModel, data: Dataset, most: int | None = _MOST_FOLDS
) -> tuple[NDArray[np.int_], NDArray[np.float64], NDArray[np.float64]]:
    """Rows of kernels of designed families, each predicted by a model that knows none of its
    families, with the disagreement; `most` is that of :func:`family_folds`."""
    rows, predicted, disagreement = [], [], []
    for train, test in family_folds(data, most):
        asked = data.take(test)
        fitted = model.fit_point(data.take(train)).on(asked.processors)
        time_us, spread = fitted.times_us(asked.table)
        rows.append(test)
        predicted.append(time_us)
        disagreement.append(spread)
    return np.concatenate(rows), np.concatenate(predicted), np.concatenate(disagreement)


def family_folds(
    data: Dataset, most: int | None = None
) -> Iterator[tuple[NDArray[np.int_], NDArray[np.int_]]]:
    """(train, test) rows, so that no tested kernel occurs in a family that was learned from.

    A kernel that occurs in several families is tested in the first fold that has one of them.
    Random networks are not tested, since they are never trained, unless there is no other family.

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
    names = [family for family in data.all_families() if family != RANDOM] or [RANDOM]
    sizes = {family: sum(family in families for families in data.families) for family in names}
    count = len(sizes) if most is None else min(most, len(sizes))
    groups: list[set[str]] = [set() for _ in range(count)]
    totals = [0] * count
    for family in sorted(sizes, key=lambda name: -sizes[name]):
        smallest = totals.index(min(totals))
        groups[smallest].add(family)
        totals[smallest] += sizes[family]
    return groups
