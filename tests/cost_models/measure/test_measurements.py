from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tvm_xengine.cost_models.measure.measurements import (
    LinkMeasurement,
    Measurement,
    MeasurementCache,
    default_cache_path,
)

ONE = Measurement(
    kernel="k1",
    device="d1",
    name="conv2d",
    compute_us=2.0,
    lo_us=1.5,
    hi_us=3.0,
    clock="thread",
    rounds_us=((1.5, 2.0), (2.0,), (3.0,)),
)
LINK = LinkMeasurement("l1", latency_us=1.0, bandwidth_gb_s=10.0, samples=((64, 1.0),))


def test_what_was_added_is_found_by_the_next_process(tmp_path):
    path = tmp_path / "new" / "folder" / "m.jsonl"
    cache = MeasurementCache(path)
    cache.add(ONE)
    cache.add(LINK)
    again = MeasurementCache(path)
    assert again.find("k1", "d1") == ONE
    assert again.find_link("l1") == LINK


def test_only_the_very_key_is_found(tmp_path):
    cache = MeasurementCache(tmp_path / "m.jsonl")
    cache.add(ONE)
    assert cache.find("k1", "d2") is None
    assert cache.find("k2", "d1") is None
    assert cache.find_link("k1") is None


def test_the_last_of_several_measurements_counts(tmp_path):
    cache = MeasurementCache(tmp_path / "m.jsonl")
    newer = replace(ONE, compute_us=2.5)
    cache.add(ONE)
    cache.add(newer)
    assert MeasurementCache(tmp_path / "m.jsonl").find("k1", "d1") == newer


def test_a_line_cut_off_by_a_kill_is_lost_and_no_other(tmp_path, caplog):
    path = tmp_path / "m.jsonl"
    MeasurementCache(path).add(ONE)
    whole = path.read_text()
    path.write_text(whole + whole[: len(whole) // 2])
    with caplog.at_level(logging.WARNING):
        cache = MeasurementCache(path)
    assert cache.find("k1", "d1") == ONE
    assert "m.jsonl:2 is skipped" in caplog.text
    cache.add(replace(ONE, kernel="k2"))
    assert MeasurementCache(path).find("k2", "d1") is not None


@pytest.mark.parametrize("line", ["[]", "{}", '{"kernel": "k1"}', "nonsense", "\x00"])
def test_lines_of_another_form_are_skipped(tmp_path, line):
    path = tmp_path / "m.jsonl"
    path.write_text(line + "\n")
    assert MeasurementCache(path).find("k1", "d1") is None


def test_the_cache_lies_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_path() == tmp_path / "tvm_xengine" / "measurements.jsonl"


def test_impossible_measurements_are_refused():
    with pytest.raises(ValueError, match="compute_us must be > 0"):
        replace(ONE, compute_us=0.0)
    with pytest.raises(ValueError, match="lies outside"):
        replace(ONE, compute_us=4.0)
    with pytest.raises(ValueError, match="bandwidth_gb_s must be > 0"):
        replace(LINK, bandwidth_gb_s=0.0)


def test_a_line_of_something_else_is_said(tmp_path, caplog):
    path = tmp_path / "m.jsonl"
    path.write_text('{"milliseconds": 3}\n')
    with caplog.at_level(logging.WARNING):
        assert not MeasurementCache(path).kernels()
    assert f"{path}:1 is skipped: it has no field 'kernel'" in caplog.text


def test_a_cache_that_cannot_be_written_is_said_once_and_forgotten(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "m.jsonl"
    with pytest.raises(OSError, match="file"):
        MeasurementCache(path).add(ONE)
    cache = MeasurementCache(path, must_write=False)
    with caplog.at_level(logging.WARNING):
        cache.add(ONE)
        cache.add(replace(ONE, kernel="k2"))
    assert cache.find("k1", "d1") == ONE and cache.find("k2", "d1") is not None
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "what is measured is not kept"
    ]


def test_hot_and_cold_times_of_a_kernel_are_kept_apart(tmp_path):
    path = tmp_path / "measurements.jsonl"
    cache = MeasurementCache(path)
    rows = {
        caches: Measurement("k", "d", "name", us, us, us, "thread", ((us,),), caches=caches)
        for caches, us in (("cold", 5.0), ("hot", 3.0))
    }
    for row in rows.values():
        cache.add(row)
    read = MeasurementCache(path)
    assert read.find("k", "d") == rows["cold"]
    assert read.find("k", "d", "hot") == rows["hot"]
