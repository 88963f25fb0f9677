"""Sums that the threads of a block share, on an emulated GPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx
from tvm.support import cc
from tvm.target import Target

from tests.kernels.emulated_gpu import EmulatedGpu
from tvm_xengine.kernels import device_kinds
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.schedules.gpu_rules import propose_gpu_schedules
from tvm_xengine.kernels.store.compile import device_source
from tvm_xengine.kernels.targets import resolve_target

pytestmark = pytest.mark.skipif(cc.get_cc() is None, reason="needs a C++ compiler")
GPU = resolve_target("cuda -arch=sm_80")


def sums_of(shape: tuple[int, ...], axes: tuple[int, ...]) -> tirx.PrimFunc:
    """Centre the sums of two tensors over some axes by those of their largest products."""
    first, second = (te.placeholder(shape, "float32", name=name) for name in ("first", "second"))
    kept = [axis for axis in range(len(shape)) if axis not in axes]

    def reduced(combine, name):
        terms = {axis: te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in axes}

        def at(*position):
            places = dict(zip(kept, position, strict=True))
            index = [terms[axis] if axis in axes else places[axis] for axis in range(len(shape))]
            return combine(first(*index), second(*index), [*terms.values()])

        return te.compute([shape[axis] for axis in kept], at, name=name)

    total = reduced(lambda a, b, over: te.sum(a + b, over), "total")
    largest = reduced(lambda a, b, over: te.max(a * b, over), "largest")

    def centred(*position):
        here = [position[axis] for axis in kept]
        return first(*position) * total(*here) - largest(*here)

    return te.create_prim_func(
        [first, second, total, largest, te.compute(shape, centred, name="centred")]
    )


SUMS = {
    "rows": ((70, 331), (1,)),
    "short_rows": ((301, 33), (1,)),
    "columns": ((701, 45), (0,)),
    "few_columns": ((257, 3), (0,)),
    "channels": ((3, 5, 13, 11), (0, 2, 3)),
    "inner_channels": ((3, 11, 13, 5), (0, 1, 2)),
    "all": ((37, 41), (0, 1)),
    "one_long": ((5000,), (0,)),
}


def test_shared_sums_are_those_of_numpy(tmp_path: Path) -> None:
    kernels = {
        name: prepare_kernel(sums_of(*case).with_attr("global_symbol", name), GPU, name)
        for name, case in SUMS.items()
    }
    gpu = EmulatedGpu(list(kernels.values()), tmp_path)
    rng = np.random.default_rng(0)
    for name, (shape, axes) in SUMS.items():
        first, second = (rng.uniform(-1, 1, shape).astype("float32") for _ in range(2))
        total, largest, centred = gpu.run(kernels[name], first, second)
        sums = (first.astype("float64") + second).sum(axes, keepdims=True)
        most = (first * second).max(axes, keepdims=True)
        np.testing.assert_allclose(total, sums.squeeze(axes), atol=2e-4, err_msg=name)
        np.testing.assert_array_equal(largest, most.squeeze(axes), err_msg=name)
        np.testing.assert_allclose(centred, first * sums - most, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("case", SUMS.values(), ids=SUMS)
def test_threads_share_each_sum(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    kernel = prepare_kernel(sums_of(*case), GPU, "sums")
    source = device_source([kernel], GPU)
    assert "__shfl_down_sync" in source or "__syncthreads" in source


@pytest.mark.parametrize(
    "sums", [(18,), *(pytest.param(s, marks=pytest.mark.slow) for s in ((3, 7), (2,), (33,)))]
)
@pytest.mark.parametrize("is_row", [True, False])
def test_threads_that_have_no_sum_write_nothing(
    sums: tuple[int, ...], is_row: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every schedule that can be lowered, not only of the first one."""
    shape = (*sums, 64) if is_row else (64, *sums)
    x = te.placeholder(shape, "float32", name="x")
    k = te.reduce_axis((0, 64), "k")

    def total(*at):
        return te.sum(x[(*at, k.var) if is_row else (k.var, *at)], k)

    func = te.create_prim_func([x, te.compute(sums, total, name="total")])
    values = np.random.default_rng(0).integers(-9, 9, shape).astype("float32")
    for number, schedule in enumerate(list(propose_gpu_schedules(func, GPU))):
        one = partial(_only, schedule)
        monkeypatch.setattr(device_kinds, "propose_gpu_schedules", one)
        kernel = prepare_kernel(func, GPU, f"schedule {number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        (found,) = EmulatedGpu([kernel], folder).run(kernel, values)
        np.testing.assert_array_equal(found, values.sum(axis=-1 if is_row else 0))


def _only(schedule: tirx.PrimFunc, _func: tirx.PrimFunc, _target: Target) -> list[tirx.PrimFunc]:
    return [schedule]
