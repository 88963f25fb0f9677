"""The engine of a measured link: a device copies where no core is free for a thread of the link."""

import os
from pathlib import Path

import pytest

import tvm_xengine as xe
from tvm_xengine.compiler.costing import links as links_module
from tvm_xengine.compiler.costing.host_copies import HostLink, measure_host_link
from tvm_xengine.compiler.costing.links import with_measured_links
from tvm_xengine.cost_models.measure.measurements import LinkMeasurement, MeasurementCache

BOTH = (xe.Link("a", "b"), xe.Link("b", "a"))


def _measured(tmp_path: Path, devices: tuple[xe.Device, ...], home: str = "") -> list[str | None]:
    platform = xe.Platform(devices, BOTH, home)
    cache = MeasurementCache(tmp_path / "m.jsonl")
    return [link.engine for link in with_measured_links(platform, cache).links]


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores, whatever the machine has, and copies that nobody times."""
    measured = LinkMeasurement("link", 1.0, 1.0, ())
    monkeypatch.setattr(links_module, "measure_host_link", lambda *_: measured)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(links_module, "_can_time_streams", lambda _: False)


def test_a_device_copies_where_no_core_is_free(tmp_path: Path, cores: None) -> None:
    a, b = xe.Device("a", "llvm", cores=(0, 1)), xe.Device("b", "llvm", cores=(2, 3))
    assert _measured(tmp_path, (a, b)) == ["b", "b"]
    assert _measured(tmp_path, (a, b), home="b") == ["a", "a"]
    assert _measured(tmp_path, (a, xe.Device("b", "llvm"))) == ["b", "b"]
    assert _measured(tmp_path, (xe.Device("a", "llvm"), xe.Device("b", None))) == ["a", "a"]


def test_a_link_keeps_its_stream_where_a_core_is_free(tmp_path: Path, cores: None) -> None:
    a, b = xe.Device("a", "llvm", cores=(0, 1)), xe.Device("b", "llvm", cores=(2,))
    assert _measured(tmp_path, (a, b)) == [None, None]


def test_a_file_is_read_while_kernels_run(tmp_path: Path, cores: None) -> None:
    stored = xe.Device("b", None, folder=str(tmp_path))
    assert _measured(tmp_path, (xe.Device("a", "llvm"), stored)) == [None, None]


def test_what_a_platform_says_of_a_link_stays(tmp_path: Path, cores: None) -> None:
    devices = (xe.Device("a", "llvm"), xe.Device("b", "llvm"))
    platform = xe.Platform(devices, (xe.Link("a", "b", engine="a"), xe.Link("b", "a", 1.0, 1.0)))
    measured = with_measured_links(platform, MeasurementCache(tmp_path / "m.jsonl"))
    assert [link.engine for link in measured.links] == ["a", None]


def test_copies_with_and_without_cores_are_timed(tmp_path: Path) -> None:
    cache = MeasurementCache(tmp_path / "m.jsonl")
    core = min(os.sched_getaffinity(0))
    pinned, free = HostLink((core,), (), (core,)), HostLink((), (), ())
    first, other = measure_host_link(pinned, cache), measure_host_link(free, cache)
    assert first.link != other.link and first is measure_host_link(pinned, cache)
    assert all(size_bytes > 0 and took_us > 0 for size_bytes, took_us in first.samples)
