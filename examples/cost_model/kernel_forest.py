"""A cost model as a package of its own: a random forest, as in nn-Meter (MobiSys 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.model import Prediction, point_prediction


@dataclass(frozen=True)
class RandomForest:
    """Trees on the logarithm of time per work; nn-Meter has 100 of them for each kind of kernel."""

    trees: int = 100
    name: str = "random forest (plug-in)"

    def fit(self, data: Dataset) -> ForestPredictor:
        """Learn; the kernels that a tree has not drawn give the interval."""
        rates = np.log(data.time_us / data.table.work)
        forest = RandomForestRegressor(
            self.trees, max_features=0.3, oob_score=True, random_state=0
        ).fit(data.table.values, rates)
        spread = float(np.quantile(np.abs(forest.oob_prediction_ - rates), 0.8))
        return ForestPredictor(forest, spread)


@dataclass(frozen=True)
class ForestPredictor:
    """A fitted `RandomForest`."""

    forest: RandomForestRegressor
    spread: float

    def predict(self, table: FeatureTable) -> Prediction:
        """The rate that the trees agree on, times the work."""
        times_us = table.work * np.exp(self.forest.predict(table.values))
        return point_prediction(times_us, self.spread)
