"""A dataset as scikit-learn has it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cost_models.synthetic import NAMES, synthetic
from tvm_xengine.cost_models.dataset.bunch import as_bunch


def test_a_bunch_trains_an_estimator_of_scikit_learn():
    pytest.importorskip("sklearn")
    from sklearn.model_selection import GroupKFold, cross_val_score
    from sklearn.tree import DecisionTreeRegressor

    bunch = as_bunch(synthetic(240))
    assert (bunch.data.shape, bunch.feature_names) == ((240, len(NAMES)), list(NAMES))
    rates = np.log(bunch.target / bunch.work)
    folds = GroupKFold(3)
    scores = cross_val_score(
        DecisionTreeRegressor(max_depth=5), bunch.data, rates, groups=bunch.groups, cv=folds
    )
    assert scores.min() > 0.9
