"""Models are judged on processors that they have no labels of, with and without a calibration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cost_models.calibration.test_calibration import calibration
from tests.cost_models.models.test_adapted import elsewhere
from tvm_xengine.cost_models.calibration.unadapted import unadapted
from tvm_xengine.cost_models.judging.evaluate import hold_out
from tvm_xengine.cost_models.judging.unseen import (
    before_and_after,
    unlearned_networks,
    unseen_processors,
)
from tvm_xengine.cost_models.models.adapted import AdaptedTrees, TreeShape
from tvm_xengine.cost_models.models.model_file import read_model
from tvm_xengine.cost_models.prediction.predict import SHIPPED_MODEL
from tvm_xengine.errors import InvalidDatasetError

OTHER = "pentium4"


def test_a_calibration_helps_on_kernels_that_did_not_calibrate():
    model = unadapted(read_model(SHIPPED_MODEL))
    data = elsewhere(120)
    data = replace(data, processors=(OTHER,) * 90 + ("rocketlake",) * 30)
    known = calibration(kernels=data.kernels[:20])
    assert unseen_processors(model, data) == (OTHER,)
    found = dict(before_and_after(model, data, OTHER, known))
    errors = [judged.metrics().median_error_ratio for judged in found.values()]
    assert list(found) == ["not calibrated", "calibrated"]
    assert errors[1] < 0.01 < errors[0]
    kernels = found["calibrated"].data.kernels
    assert len(kernels) == 90 - sum(k in set(known.kernels) for k in data.kernels[:90])


def test_a_calibration_of_another_processor_counts_for_nothing():
    model, data = unadapted(read_model(SHIPPED_MODEL)), elsewhere(30)
    data = replace(data, processors=("i486",) * 30)
    assert list(dict(before_and_after(model, data, "i486", calibration()))) == ["not calibrated"]


def test_code_for_any_processor_counts_where_it_was_measured():
    """It names none, and would count as the reader's."""
    model, data = unadapted(read_model(SHIPPED_MODEL)), elsewhere(30)
    generic = ('{"kind":"llvm","mcpu":"x86-64"}',) * 30
    data = replace(data, targets=generic, processors=(OTHER,) * 30)
    ((_, found),) = before_and_after(model, data, OTHER, None)
    own = model.predictor.predict(data.table)
    assert (found.predicted.hi_us > own.hi_us).all()


def test_networks_are_unlearned_whose_families_a_model_does_not_know():
    data = replace(elsewhere(6), families=(("a",), ("b",), ("a", "b"), ("c",), ("b", "c"), ("a",)))
    model = replace(read_model(SHIPPED_MODEL), card={"families": {"b": 9}})
    assert unlearned_networks(model, data).families == (("a",), ("c",), ("a",))
    with pytest.raises(InvalidDatasetError, match="has not learned from"):
        unlearned_networks(replace(model, card={"families": {"a": 1, "b": 1, "c": 1}}), data)


def test_an_adapted_model_expects_less_of_a_processor_that_is_held_out():
    data = replace(elsewhere(60), processors=("a", "b") * 30)
    model = AdaptedTrees(members=1, shared=TreeShape(20, 6))
    found = hold_out(model, data, "processor")
    at = [k for k, name in enumerate(data.processors) if name == "b"]
    fitted = model.fit(data.take([k for k, name in enumerate(data.processors) if name == "a"]))
    expected = fitted.on(data.take(at).processors).predict(data.take(at).table)
    np.testing.assert_allclose(found.predicted.time_us[at], expected.time_us)
    plain = fitted.predict(data.take(at).table)
    assert (expected.hi_us / expected.lo_us > plain.hi_us / plain.lo_us).all()
