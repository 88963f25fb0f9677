"""Tuned schedules are kept, found again, and handed on to relatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import s_tir, tirx
from tvm.target import Target

from tests.kernels.kernels import NATIVE, centred_twice, matmul
from tests.kernels.onednn.onednn_twins import run
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.store.tuned import (
    TunedSchedule,
    TunedSchedules,
    kernel_kind,
    prepare_tuned,
    scheduled_by,
    trace_of,
)
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.relax_ir.kernel_attributes import kernel_hash
from tvm_xengine.tuning import tune_kernel as tuning
from tvm_xengine.tuning.bench import BenchHere
from tvm_xengine.tuning.search import with_cores
from tvm_xengine.tuning.tune_kernel import tune_kernel

TARGET = resolve_target(NATIVE)


def tiled(func: tirx.PrimFunc) -> str:
    """A trace with tiles that fit this product."""
    sch = s_tir.Schedule(func)
    i, j, k = sch.get_loops(sch.get_sblock("c"))
    rows = sch.split(i, sch.sample_perfect_tile(i, n=2, max_innermost_factor=8, decision=[8, 4]))
    columns = sch.split(
        j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=16, decision=[4, 8])
    )
    sch.reorder(rows[0], columns[0], k, rows[1], columns[1])
    sch.vectorize(columns[1])
    return trace_of(sch)


def schedule_of(func: tirx.PrimFunc, trace: str, kind: str = "matmul") -> TunedSchedule:
    return TunedSchedule(kernel_hash(func), str(TARGET), kind, trace, 100.0, 50.0, 16, "search")


def inputs_of(kernel: DeviceKernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(spec.shape, dtype=spec.dtype) for spec in kernel.inputs]


def assert_same_numbers(one: DeviceKernel, other: DeviceKernel) -> None:
    given = inputs_of(one)
    for expected, found in zip(run(one, given), run(other, given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_what_was_tuned_is_found_again_after_a_restart(tmp_path: Path) -> None:
    func = matmul(32, 32, 16)
    first = TunedSchedules(tmp_path / "new")
    assert len(first) == 0 and first.find(func, TARGET) is None
    found = schedule_of(func, tiled(func))
    first.add(found)
    assert TunedSchedules(tmp_path / "new").find(func, TARGET) == found
    assert TunedSchedules(tmp_path / "new").find(func, resolve_target("llvm -mcpu=x86-64")) is None
    assert TunedSchedules(tmp_path / "new").find(matmul(32, 32, 32), TARGET) is None


def test_the_last_word_on_a_kernel_counts(tmp_path: Path) -> None:
    func, tuned = matmul(32, 32, 16), TunedSchedules(tmp_path)
    tuned.add(schedule_of(func, ""))
    better = replace(schedule_of(func, tiled(func)), tuned_us=10.0)
    tuned.add(better)
    assert TunedSchedules(tmp_path).find(func, TARGET) == better


def test_a_line_that_cannot_be_read_is_skipped(tmp_path: Path) -> None:
    func, tuned = matmul(32, 32, 16), TunedSchedules(tmp_path)
    tuned.add(schedule_of(func, ""))
    with (tmp_path / "schedules.jsonl").open("a") as file:
        file.write('{"kernel": "half a li')
    assert len(TunedSchedules(tmp_path)) == 1


def test_a_tuned_kernel_computes_the_same_under_another_name(tmp_path: Path) -> None:
    func, tuned = matmul(32, 32, 16), TunedSchedules(tmp_path)
    tuned.add(schedule_of(func, tiled(func)))
    rule = prepare_kernel(func, TARGET, "matmul")
    kernel = prepare_tuned(func, TARGET, "matmul", tuned)
    assert kernel.key != rule.key and kernel.symbol != rule.symbol
    assert kernel_hash(kernel.func) != kernel_hash(rule.func)
    assert_same_numbers(rule, kernel)


def test_our_rules_are_kept_where_nothing_is_faster(tmp_path: Path) -> None:
    func, tuned = matmul(32, 32, 16), TunedSchedules(tmp_path)
    tuned.add(schedule_of(func, ""))
    rule = prepare_kernel(func, TARGET, "matmul")
    assert prepare_tuned(func, TARGET, "matmul", tuned).symbol == rule.symbol
    assert prepare_tuned(func, TARGET, "matmul", None).symbol == rule.symbol


@pytest.mark.parametrize("shape", [(64, 96, 32), (30, 14, 7)])
def test_a_schedule_fits_relatives_of_other_sizes(shape: tuple[int, int, int]) -> None:
    trace, relative = tiled(matmul(32, 32, 16)), matmul(*shape)
    scheduled = scheduled_by(trace, relative)
    kernel = prepare_kernel(relative, TARGET, schedule=lambda *_: scheduled)
    assert_same_numbers(prepare_kernel(relative, TARGET), kernel)


def test_relatives_have_the_kind_and_come_by_what_they_gain(tmp_path: Path) -> None:
    tuned = TunedSchedules(tmp_path)
    small, large, other = matmul(32, 32, 16), matmul(64, 32, 16), matmul(16, 16, 16)
    tuned.add(schedule_of(small, tiled(small)))
    tuned.add(replace(schedule_of(large, tiled(large)), tuned_us=20.0))
    tuned.add(schedule_of(other, "", kind="matmul"))
    tuned.add(schedule_of(centred_twice(8, 8), tiled(small), kind="centred"))
    assert [r.kernel for r in tuned.relatives("matmul", TARGET)] == [
        kernel_hash(large),
        kernel_hash(small),
    ]


def test_the_kind_leaves_out_the_numbers() -> None:
    assert kernel_kind("fused_conv2d12_add3") == kernel_kind("fused_conv2d_add")
    assert kernel_kind("fused_conv2d_add") != kernel_kind("conv2d")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Our rules' loops take 100 us, any others 50 us; the kernels that were timed."""
    seen: list[str] = []

    def times_us(_: BenchHere, kernels: Sequence[DeviceKernel], _effort: object) -> list[float]:
        seen.extend(kernel.key for kernel in kernels)
        return [100.0 if kernel.key in rules else 50.0 for kernel in kernels]

    rules: set[str] = set()
    monkeypatch.setattr(BenchHere, "times_us", times_us)
    original = prepare_kernel

    def prepared(func: tirx.PrimFunc, *arguments: object, **options: object) -> DeviceKernel:
        kernel = original(func, *arguments, **options)
        if "schedule" not in options:
            rules.add(kernel.key)
        return kernel

    monkeypatch.setattr(tuning, "prepare_kernel", prepared)
    return seen


def nothing_searched(*_args: object, **_options: object) -> list[tuple[s_tir.Schedule, float]]:
    raise AssertionError("the search must not begin")


@pytest.mark.usefixtures("timed")
def test_a_relative_that_gains_as_much_spares_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "search", nothing_searched)
    tuned, small, large = TunedSchedules(tmp_path), matmul(32, 32, 16), matmul(64, 96, 32)
    tuned.add(schedule_of(small, tiled(small)))
    found = tune_kernel(large, TARGET, "matmul1", tuned, trials=32)
    assert (found.origin, found.trials, found.tuned_us) == (kernel_hash(small), 1, 50.0)
    assert TunedSchedules(tmp_path).find(large, TARGET) == found


@pytest.mark.usefixtures("timed")
def test_a_schedule_that_computes_something_else_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = matmul(32, 32, 16)
    wrong = s_tir.Schedule(small)

    def proposed(*_args: object, **_options: object) -> list[tuple[s_tir.Schedule, float]]:
        return [(wrong, 1.0)]

    monkeypatch.setattr(tuning, "search", proposed)
    outputs = iter([[np.ones(3)], [np.ones(3) + 1e-2]])
    monkeypatch.setattr(BenchHere, "outputs", lambda *_: next(outputs))
    found = tune_kernel(small, TARGET, "matmul", TunedSchedules(tmp_path), trials=16)
    assert found.trace == "" and found.gain_ratio == 1.0


@pytest.mark.slow
def test_the_search_beats_loops_that_nobody_has_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MetaSchedule against loops as they were written, whatever our rules may do some day."""

    def as_written(func: tirx.PrimFunc, _target: Target) -> tirx.PrimFunc:
        return func

    def prepared(*arguments: Any, schedule: Any = as_written) -> DeviceKernel:
        return prepare_kernel(*arguments, schedule=schedule)

    monkeypatch.setattr(tuning, "prepare_kernel", prepared)
    func = matmul(96, 128, 160)
    target = resolve_target("llvm -mcpu=native -num-cores=1")
    found = tune_kernel(func, target, "matmul", TunedSchedules(tmp_path), trials=32)
    assert found.trace and found.origin == "search"
    assert found.gain_ratio < 0.5


@pytest.mark.parametrize(
    ("text", "cores"), [("llvm -mcpu=x86-64", 1), ("llvm -mcpu=x86-64 -num-cores=3", 3)]
)
def test_the_search_is_told_how_many_cores_a_processor_has(text: str, cores: int) -> None:
    """MetaSchedule refuses a processor without; the second device of the usual platform has none."""
    target = with_cores(resolve_target(text))
    assert int(target.attrs["num-cores"]) == cores
    assert str(target.attrs["mcpu"]) == "x86-64"
