from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm import tirx

from tests.kernels.kernels import BASELINE, long_kernel, matmul, scale_and_shift
from tests.shares import first
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint
from tvm_xengine.cost_models.measure.timers import (
    IsolatedTimer,
    kept_libraries,
    passing_libraries,
)
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.kernels.device_kernel import DeviceKernel, TensorSpec, prepare_kernel
from tvm_xengine.kernels.store.kernel_store import KernelStore
from tvm_xengine.kernels.targets import resolve_target

QUICK = Effort(rounds=2, batch_us=100.0, round_us=1000.0, hang_s=2.0)


def calling(function: str, *arguments: object) -> DeviceKernel:
    """A kernel that calls a function of the C library."""
    x, y = (tirx.decl_buffer((4,), "float32", name=name) for name in "xy")
    call = tirx.Evaluate(tirx.call_extern("int32", function, *arguments))
    body = tirx.SeqStmt([call, tirx.BufferStore(y, x[0], [0])])
    func = tirx.PrimFunc([x, y], body)
    func = func.with_attr("global_symbol", f"kernel_{function}").with_attr("tirx.noalias", True)
    spec = TensorSpec((4,), "float32")
    target = resolve_target(BASELINE)
    bound = tirx.transform.BindTarget(target.with_host(target))
    func = bound(tvm.IRModule({f"kernel_{function}": func}))[f"kernel_{function}"]
    return DeviceKernel(
        func, f"kernel_{function}", function, function, target, (spec,), (spec,), 0, (), False
    )


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    first(1, [("abort", (), "crashed"), ("sleep", (1000,), "did not end")]),
)
def test_kernels_that_crash_or_hang_are_recorded_and_the_others_timed(
    function: str, arguments: tuple[int, ...], said: str, tmp_path: Path
):
    cache = MeasurementCache(tmp_path / "measurements.jsonl")
    target = resolve_target(BASELINE)
    good = [prepare_kernel(func, target) for func in (scale_and_shift(8), matmul(8, 8, 8))]
    kernels = [good[0], calling(function, *arguments), good[1]]
    timer = IsolatedTimer(kept_libraries(KernelStore(tmp_path / "kernels")))
    measured = measure_kernels(kernels, cache, effort=QUICK, timer=timer)
    assert set(measured) == {kernel.symbol for kernel in good}
    assert all(len(m.rounds_us) == 2 for m in measured.values())
    again = MeasurementCache(tmp_path / "measurements.jsonl")
    assert said in again.find_failure(function, device_fingerprint(target)).failed
    calls = []
    measure_kernels(kernels, again, effort=QUICK, on_progress=lambda *p: calls.append(p))
    assert not calls


def test_a_kernel_whose_library_was_removed_is_timed(tmp_path: Path) -> None:
    kernel = prepare_kernel(scale_and_shift(8), resolve_target(BASELINE))
    timer = IsolatedTimer(kept_libraries(KernelStore(tmp_path)))
    timer.prepare([kernel], None)
    for library in tmp_path.rglob("*.so"):
        library.unlink()
    assert timer.time_us(kernel, QUICK)
    timer.close()


def test_libraries_of_several_kernels_hold_them_all(tmp_path):
    cache = MeasurementCache(tmp_path / "measurements.jsonl")
    target = resolve_target(BASELINE)
    kernels = [prepare_kernel(scale_and_shift(n), target) for n in range(1, 20)]
    timer = IsolatedTimer(passing_libraries(tmp_path))
    measured = measure_kernels(kernels, cache, effort=QUICK, timer=timer)
    assert len(measured) == len(kernels)
    assert len(list(tmp_path.glob("*.so"))) == 2


@pytest.mark.slow
def test_a_kernel_that_takes_too_long_to_compile_is_recorded_and_the_others_timed(tmp_path):
    cache = MeasurementCache(tmp_path / "measurements.jsonl")
    target = resolve_target(BASELINE)
    short = [prepare_kernel(scale_and_shift(n), target) for n in range(1, 4)]
    kernels = [short[0], long_kernel(), *short[1:]]
    tried = []
    for _ in range(2):
        timer = IsolatedTimer(passing_libraries(tmp_path, limit_s=1.0))
        measured = measure_kernels(
            kernels, cache, effort=QUICK, timer=timer, on_compiled=lambda *p: tried.append(p)
        )
        assert set(measured) == {kernel.symbol for kernel in short}
    assert [done for done, _, _ in tried] == [4]
    assert "does not compile" in cache.find_failure("long", device_fingerprint(target)).failed
