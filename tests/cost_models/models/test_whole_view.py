from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.cost_models.synthetic import synthetic
from tvm_xengine.cost_models.features.table import FEATURE_SET, FeatureTable
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees
from tvm_xengine.cost_models.models.whole_view import whole_view

NAMES = (
    *("log_work", "log_flops", "lanes", "log_iterations_0", "log_iterations_5"),
    *("log_iterations_plain", "threads"),
)


def table_of_work(log_work):
    """Kernels that do the same for each execution, without a body that is written without vectors."""
    log_work = np.asarray(log_work, dtype=float)
    zeros = np.zeros_like(log_work)
    columns = [log_work, log_work + 3, zeros + 16, log_work - 1, zeros, zeros, zeros + 1]
    work = 2.0**log_work
    return FeatureTable(FEATURE_SET, NAMES, np.stack(columns, axis=1), work, work, work)


def test_large_kernels_that_do_the_same_look_the_same():
    view = whole_view(table_of_work([10, 18, 20, 25]))
    assert view.shape == (4, len(NAMES) - 1)  # the lesser body is left out
    np.testing.assert_array_equal(view[1], view[2])
    np.testing.assert_array_equal(view[1], view[3])
    assert (view[0] != view[1]).sum() == 1  # what a call costs once matters to the short one


def test_a_body_that_is_missing_is_not_one_that_runs_seldom():
    table = table_of_work([10, 20])
    seldom = replace(table, values=np.where(table.values == 0, 1.0, table.values))
    assert not np.isin(whole_view(table)[:, 4], whole_view(seldom)[:, 4]).any()


def test_the_table_is_left_as_it_was():
    table = table_of_work([10, 20])
    before = table.values.copy()
    whole_view(table)
    np.testing.assert_array_equal(table.values, before)


def test_larger_kernels_are_predicted_by_what_an_execution_does():
    """The rate depends on bytes per execution, of which only the total is a feature."""
    data = synthetic(1500)
    rng = np.random.default_rng(0)
    log_work = rng.uniform(18, 28, len(data))
    log_each = rng.uniform(0, 6, len(data))
    work = 2.0**log_work
    values = np.stack([log_work, log_work + log_each, np.ones(len(data))], axis=1)
    names = ("log_work", "log_loaded_bytes", "threads")
    time_us = 1e-4 * work * (1 + 2.0**log_each)
    table = FeatureTable(FEATURE_SET, names, values, work, work, work)
    known = np.flatnonzero(log_work < 25)
    unknown = np.flatnonzero(log_work >= 25)
    learned = replace(data, table=table, time_us=time_us).take(known)
    fitted = BoostedTrees(members=1, trees=80, learning_rate=0.2).fit_point(learned)
    found_us = fitted.predict(table.take(unknown)).time_us
    assert np.median(np.abs(found_us / time_us[unknown] - 1)) < 0.05
