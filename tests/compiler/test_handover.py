"""The time of handing over between streams is measured, kept, and left out where it cannot be measured."""

from dataclasses import replace
from pathlib import Path

import pytest

import tvm_xengine as xe
from tvm_xengine.compiler.costing import handover as handover_module
from tvm_xengine.compiler.costing.handover import Cores, handover_us, start_us
from tvm_xengine.compiler.costing.links import with_measured_links
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.runtime.events import can_overlap

pytestmark = pytest.mark.skipif(not can_overlap(), reason="needs semaphores in plain memory")

ANY = ((), ())


def test_threads_that_wait_for_each_other_are_timed(tmp_path: Path) -> None:
    found = handover_us(MeasurementCache(tmp_path / "m.jsonl"), ANY)
    assert found is None or 0 < found <= 100


def test_threads_with_nothing_to_do_are_timed(tmp_path: Path) -> None:
    found = start_us(MeasurementCache(tmp_path / "m.jsonl"), ANY)
    assert found is None or 0 < found <= 400


def test_what_was_measured_is_kept_and_what_is_too_slow_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def turns(*each_us: float) -> None:
        def turns_us(_cores: Cores) -> list[float]:
            asked.append(1)
            return list(each_us)

        monkeypatch.setattr(handover_module, "_turns_us", turns_us)

    path = tmp_path / "m.jsonl"
    turns(8000.0, 9000.0)
    assert handover_us(MeasurementCache(path), ANY) is None
    turns(3.0, 3.0, 5000.0, 3.0)
    assert handover_us(MeasurementCache(path), ANY) == pytest.approx(1.5)
    asked.clear()
    assert handover_us(MeasurementCache(path), ANY) == pytest.approx(1.5)
    assert not asked


def test_a_platform_keeps_the_figure_that_it_gives_and_needs_none_without_links(
    tmp_path: Path,
) -> None:
    cache = MeasurementCache(tmp_path / "m.jsonl")
    devices = (xe.Device("a", "llvm"), xe.Device("b", "llvm"))
    given = xe.Platform(devices, (xe.Link("a", "b", 1.0, 1.0),), handover_us=9.0)
    assert with_measured_links(given, cache).handover_us == 9.0
    assert with_measured_links(xe.Platform(devices[:1]), cache).handover_us is None


def test_a_platform_that_is_described_or_elsewhere_is_not_measured_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = MeasurementCache(tmp_path / "m.jsonl")
    monkeypatch.setattr(handover_module, "_turns_us", lambda _cores: [4.0])
    monkeypatch.setattr(handover_module, "_starts_us", lambda _cores: [50.0])
    devices = (xe.Device("a", "llvm"), xe.Device("b", "llvm"))
    described = xe.Platform(devices, (xe.Link("a", "b", 1.0, 1.0),))
    assert with_measured_links(described, cache).handover_us is None
    here = xe.Platform(devices, (xe.Link("a", "b"),))
    assert with_measured_links(here, cache).handover_us == 2.0
    assert with_measured_links(here, cache).start_us == 50.0
    elsewhere = replace(here, devices=(devices[0], replace(devices[1], cores=(4095,))))
    assert with_measured_links(elsewhere, cache).handover_us is None
