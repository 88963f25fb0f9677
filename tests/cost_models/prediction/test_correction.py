"""Errors that follow the prior of the correction, and some that do not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tvm_xengine.cost_models.prediction.correction import Correction
from tvm_xengine.cost_models.prediction.likeness import Likeness
from tvm_xengine.scheduling.problem import CostSource, OpCost

KERNELS, KINDS, TREES = 120, 12, 40
SPREAD = 0.35
"""Half the width of every interval, as a logarithm."""


def correction(source=CostSource.TRANSFERRED, groups=("cpu",)):
    """Kernels of some kinds; those of one kind share most of their leaves, and have like features."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(KINDS, size=KERNELS)
    leaves = np.where(
        rng.random((KERNELS, TREES)) < 0.8, kinds[:, None], 100 + np.arange(KERNELS)[:, None]
    )
    symbols = tuple(f"k{k}" for k in range(KERNELS))
    predicted = {
        symbol: OpCost(
            100.0, interval_us=(100 * math.exp(-SPREAD), 100 * math.exp(SPREAD)), source=source
        )
        for symbol in symbols
    }
    where = tuple(groups[k % len(groups)] for k in range(KERNELS))
    features = np.eye(KINDS)[kinds] + 0.05 * rng.random((KERNELS, KINDS))
    return Correction(symbols, where, lambda: Likeness(leaves, features), predicted), kinds


def measured(costs, errors, rows):
    """`costs` with the true time of some kernels."""
    true = {f"k{k}": OpCost(100.0 * math.exp(errors[k]), source=CostSource.MEASURED) for k in rows}
    return {**costs, **true}


def test_the_error_of_a_device_is_carried_over_to_all_of_its_kernels():
    prior, _ = correction(groups=("cpu", "other"))
    costs = prior.corrected(measured(prior.predicted, np.full(KERNELS, 0.4), range(0, 60, 2)))
    of_cpu = [costs[f"k{k}"].compute_us for k in range(60, KERNELS, 2)]
    of_other = [costs[f"k{k}"].compute_us for k in range(1, KERNELS, 2)]
    assert min(of_cpu) > 120
    assert np.mean(of_other) < np.mean(of_cpu) - 10


def test_like_kernels_are_corrected_alike_and_unlike_ones_little():
    prior, kinds = correction()
    errors = np.where(kinds == 0, 0.3, 0.0)
    costs = prior.corrected(measured(prior.predicted, errors, range(60)))
    alike = np.mean([costs[f"k{k}"].compute_us for k in range(60, KERNELS) if kinds[k] == 0])
    unlike = np.mean([costs[f"k{k}"].compute_us for k in range(60, KERNELS) if kinds[k] != 0])
    assert alike == pytest.approx(135, rel=0.1)
    assert unlike == pytest.approx(100, rel=0.03)


def test_intervals_shrink_and_still_hold_four_times_out_of_five():
    prior, kinds = correction()
    widths, inside = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        errors = 0.2 * rng.standard_normal() + 0.15 * rng.standard_normal(KINDS)[kinds]
        errors = errors + 0.08 * rng.standard_normal(KERNELS)
        costs = prior.corrected(measured(prior.predicted, errors, range(60)))
        for k in range(60, KERNELS):
            cost = costs[f"k{k}"]
            inside.append(cost.lo_us <= 100 * math.exp(errors[k]) <= cost.hi_us)
            widths.append(math.log(cost.hi_us / cost.lo_us) / 2)
    assert 0.75 <= np.mean(inside) <= 0.95
    assert np.mean(widths) < 0.7 * SPREAD


def test_errors_beyond_what_the_model_says_of_itself_widen_the_intervals():
    prior, _ = correction(CostSource.PREDICTED)
    rng = np.random.default_rng(1)
    errors = rng.standard_normal(KERNELS)
    costs = prior.corrected(measured(prior.predicted, errors, range(60)))
    half = np.mean(
        [math.log(costs[f"k{k}"].hi_us / costs[f"k{k}"].lo_us) / 2 for k in range(60, 120)]
    )
    assert half > 1.5 * SPREAD


def test_a_kernel_that_is_far_off_alone_says_little_of_others():
    prior, _ = correction()
    errors = np.full(KERNELS, 0.1)
    usual = prior.corrected(measured(prior.predicted, errors, range(20)))
    errors[3] = 2.0
    odd = prior.corrected(measured(prior.predicted, errors, range(20)))
    for k in range(20, KERNELS):
        assert odd[f"k{k}"].compute_us == pytest.approx(usual[f"k{k}"].compute_us, rel=0.2)


def test_what_is_measured_or_of_no_model_stays_as_it_is():
    prior, _ = correction()
    roofline = {"library": OpCost(7.0, source=CostSource.ROOFLINE)}
    before = measured({**prior.predicted, **roofline}, np.full(KERNELS, 0.4), range(30))
    after = prior.corrected(before)
    assert after["library"] is before["library"]
    assert all(after[f"k{k}"] is before[f"k{k}"] for k in range(30))
    assert {after[f"k{k}"].source for k in range(30, KERNELS)} == {CostSource.TRANSFERRED}
    assert prior.corrected(prior.predicted) == dict(prior.predicted)


def test_correcting_twice_is_correcting_once():
    prior, _ = correction()
    once = prior.corrected(measured(prior.predicted, np.full(KERNELS, 0.4), range(30)))
    assert prior.corrected(once) == once


def test_one_measurement_says_little():
    prior, _ = correction(CostSource.PREDICTED)
    errors = np.full(KERNELS, 0.3)
    costs = prior.corrected(measured(prior.predicted, errors, [0]))
    assert np.median([costs[f"k{k}"].compute_us for k in range(1, KERNELS)]) < 110
    narrow = {s: replace(c, interval_us=(99.0, 101.0)) for s, c in prior.predicted.items()}
    sure = replace(prior, predicted=narrow)
    assert sure.corrected(measured(narrow, errors, [0]))["k1"].hi_us < 125
