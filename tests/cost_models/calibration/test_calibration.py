"""A sweep of a machine is fitted, kept in a file, and used where a processor has no labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.commands.in_process import run_command
from tests.cost_models.models.test_adapted import CALL_US, SLOWER, US_PER_BYTE, elsewhere
from tvm_xengine.cost_models.calibration.calibrate import fit_machine
from tvm_xengine.cost_models.calibration.calibration import (
    Calibration,
    read_calibration,
    write_calibration,
)
from tvm_xengine.cost_models.calibration.unadapted import unadapted
from tvm_xengine.cost_models.models.cold_calls import ColdCalls
from tvm_xengine.cost_models.models.model_file import read_model
from tvm_xengine.cost_models.prediction.abstain import is_unknown
from tvm_xengine.cost_models.prediction.predict import SHIPPED_MODEL, default_model
from tvm_xengine.cost_models.prediction.prior import correction_of
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.scheduling.problem import CostSource, OpCost

UNKNOWN_CPU = '{"kind":"llvm","mcpu":"pentium4"}'


def calibration(**changes: object) -> Calibration:
    found = Calibration(
        *("machine", "pentium4", "2026-11-25", {"call_us": 0.2}, SLOWER),
        *(ColdCalls(CALL_US, US_PER_BYTE), 0.1, ("a", "b")),
    )
    return replace(found, **changes)


def test_a_sweep_finds_the_law_of_a_machine():
    data, bare = elsewhere(), unadapted(read_model(SHIPPED_MODEL)).predictor
    factor, cold, spread = fit_machine(bare, 0.0, data.table, data.time_us)
    assert factor == pytest.approx(SLOWER, rel=0.01)
    assert (cold.call_us, cold.us_per_byte) == pytest.approx((CALL_US, US_PER_BYTE), rel=0.05)
    assert spread < 0.01


def test_a_processor_without_labels_is_predicted_as_it_was_calibrated():
    data, bare = elsewhere(), unadapted(read_model(SHIPPED_MODEL))
    symbols, targets = tuple(map(str, range(len(data)))), (UNKNOWN_CPU,) * len(data)

    def error_and_width(model):
        costs = correction_of(model, symbols, targets, targets, data.table).predicted
        typical = np.array([np.sqrt(c.lo_us * c.hi_us) for c in costs.values()])
        width = np.median([c.hi_us / c.lo_us for c in costs.values()])
        assert {c.source for c in costs.values()} == {CostSource.TRANSFERRED}
        return np.median(np.abs(typical / data.time_us - 1)), width

    before, after = map(error_and_width, (bare, replace(bare, calibration=calibration())))
    assert after[0] < 0.01 < before[0]
    assert after[1] < before[1]


def test_labels_say_more_of_a_processor_than_a_sweep():
    model = replace(default_model(), calibration=calibration(processor="emeraldrapids"))
    target = '{"kind":"llvm","mcpu":"emeraldrapids"}'
    assert not model.is_calibrated(target)
    assert unadapted(model).is_calibrated(target)


def test_the_file_of_a_machine_says_what_was_written(tmp_path: Path):
    path = tmp_path / "machine.json"
    write_calibration(calibration(), path)
    assert read_calibration(path) == calibration()
    path.write_text(path.read_text().replace('"factor": 1.5', '"factor": -1'))
    with pytest.raises(InvalidDatasetError, match=path.name):
        read_calibration(path)


@pytest.mark.parametrize(
    ("source", "high_us", "unknown"),
    [
        (CostSource.PREDICTED, 3.9, False),
        (CostSource.TRANSFERRED, 4.1, True),
        (CostSource.ROOFLINE, 1.1, True),
        (CostSource.MEASURED, 9.0, False),
    ],
)
def test_a_model_says_where_it_has_no_ground(source, high_us, unknown):
    assert is_unknown(OpCost(1.0, interval_us=(1.0, high_us), source=source)) is unknown


@pytest.mark.slow
def test_a_machine_is_calibrated_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = run_command("costs", "calibrate", "--time-limit", "20")
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "tvm_xengine" / "machines").glob("*.json")
    found = read_calibration(path)
    assert default_model().calibration == found
    assert found.rates["stream_L1_gb_s"] > found.rates["stream_memory_gb_s"] > 0
    assert 0 < found.rates["call_us"] < 100
