"""A sweep of a machine is fitted, kept in a file, and used where a processor has no labels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.costs.calibrated import judge
from tests.commands.in_process import run_command
from tests.cost_models.models.test_adapted import CALL_US, SLOWER, US_PER_BYTE, elsewhere
from tests.kernels.kernels import scale_and_shift
from tvm_xengine.cost_models.calibration import calibrate
from tvm_xengine.cost_models.calibration.calibrate import fit_machine
from tvm_xengine.cost_models.calibration.calibration import (
    Calibration,
    Evidence,
    read_calibration,
    write_calibration,
)
from tvm_xengine.cost_models.calibration.sweep import Sweep
from tvm_xengine.cost_models.calibration.unadapted import unadapted
from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.models.cold_calls import ColdCalls
from tvm_xengine.cost_models.models.model_file import read_model
from tvm_xengine.cost_models.prediction.abstain import is_unknown
from tvm_xengine.cost_models.prediction.predict import SHIPPED_MODEL, default_model
from tvm_xengine.cost_models.prediction.prior import correction_of, predicted_on
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.scheduling.problem import CostSource, OpCost

UNKNOWN_CPU = '{"kind":"llvm","mcpu":"pentium4"}'


def calibration(**changes: object) -> Calibration:
    found = Calibration(
        *("machine", "pentium4", "2026-11-25", {"call_us": 0.2}, SLOWER),
        *(ColdCalls(CALL_US, US_PER_BYTE), 0.1, ("a", "b")),
    )
    return replace(found, **changes)


def test_kernels_are_timed_though_making_them_used_up_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[str] = []
    target = resolve_target("llvm -mcpu=x86-64-v3")
    kernels = tuple(prepare_kernel(scale_and_shift(n), target, f"k{n}") for n in range(1, 41))
    monkeypatch.setattr(calibrate, "sweep_of", lambda *_: Sweep({}, kernels, {}))
    monkeypatch.setattr(calibrate, "passing_libraries", lambda _: None)
    monkeypatch.setattr(calibrate, "IsolatedTimer", lambda _: None)
    monkeypatch.setattr(
        calibrate, "measure_kernels", lambda part, *_, **__: timed.extend(k.key for k in part)
    )
    calibrate.time_sweep(target, tmp_path / "sweep.jsonl", limit_s=-1.0)
    assert 8 <= len(set(timed)) < 40


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


def evidence(data: Dataset) -> Evidence:
    numbers = {names: number for number, names in enumerate(dict.fromkeys(data.families))}
    return Evidence.of(data.table, data.time_us, [numbers[names] for names in data.families])


def test_evidence_corrects_other_kernels():
    """All are 1.5 times as slow as the three numbers of the machine say."""
    data, bare = elsewhere(), unadapted(read_model(SHIPPED_MODEL))
    data = replace(data, time_us=1.5 * data.time_us)
    known, asked = (data.take(range(start, len(data), 2)) for start in (0, 1))

    def errors_and_coverage(found: Calibration) -> tuple[float, float]:
        model = replace(bare, calibration=found)
        answer = predicted_on(model, [UNKNOWN_CPU] * len(asked), asked.table)
        inside = (answer.lo_us <= asked.time_us) & (asked.time_us <= answer.hi_us)
        typical_us = np.sqrt(answer.lo_us * answer.hi_us)
        return float(np.mean(np.abs(np.log(typical_us / asked.time_us)))), float(np.mean(inside))

    before = errors_and_coverage(calibration())
    after = errors_and_coverage(calibration(evidence=evidence(known)))
    assert after[0] < before[0] / 2
    assert after[1] >= 0.75


def test_evidence_by_other_features_is_left_out():
    data, bare = elsewhere(), unadapted(read_model(SHIPPED_MODEL))
    found = evidence(data)
    other = replace(found, names=("another", *found.names[1:]))
    targets = [UNKNOWN_CPU] * len(data)
    plain, left_out = (
        predicted_on(replace(bare, calibration=calibration(evidence=each)), targets, data.table)
        for each in (None, other)
    )
    assert np.array_equal(plain.time_us, left_out.time_us)


def test_the_file_of_a_machine_keeps_its_evidence(tmp_path: Path):
    path = tmp_path / "machine.json"
    found = calibration(evidence=evidence(elsewhere()))
    write_calibration(found, path)
    assert read_calibration(path) == found
    document = json.loads(path.read_text())
    for change in ({"cold_us": [1.0]}, {"rows": []}, {"names": ["one"]}):
        evidence_of = {**document["evidence"], **change}
        path.write_text(json.dumps({**document, "evidence": evidence_of}))
        with pytest.raises(InvalidDatasetError, match=path.name):
            read_calibration(path)
    del document["evidence"]
    path.write_text(json.dumps(document))
    assert read_calibration(path) == calibration()


@pytest.mark.slow
@pytest.mark.parametrize("processor", ["emeraldrapids", "znver3"])
@pytest.mark.parametrize("is_random_known", [True, False])
def test_a_part_of_the_kernels_of_a_new_processor_says_much_of_the_rest(
    processor: str, is_random_known: bool
):
    """A model that knows the other processors only, and evidence of networks that are not asked about."""
    before, middle, after = judge(processor, is_random_known=is_random_known)
    assert after.error_ratio < 0.9 * min(before.error_ratio, middle.error_ratio)
    assert after.error_ratio < 0.15  # 0.092 to 0.147
    assert 0.75 <= after.inside_ratio <= 0.95
