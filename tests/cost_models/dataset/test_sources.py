from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm_ffi

from tests.kernels.kernels import BASELINE, matmul, momentum
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.dataset.sources import (
    KernelSources,
    add_kernel,
    refresh_features,
)
from tvm_xengine.cost_models.features.table import FEATURE_SET
from tvm_xengine.cost_models.measure.measurements import Measurement
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.targets import resolve_target

CALL = LibraryCall(
    operation="linear",
    options=(("axes", (0, 1)), ("transpose", True), ("scale", None)),
    shapes=((2, 3), (4, 3), (2, 4)),
    threads=2,
    source="onednn",
)


@pytest.fixture(scope="module")
def kernel() -> DeviceKernel:
    return prepare_kernel(momentum(64), resolve_target(BASELINE), "momentum")


def test_a_kernel_is_what_it_was_and_can_be_compiled(tmp_path, kernel):
    called = replace(kernel, library=CALL, library_flops=48.0)
    KernelSources(tmp_path).add(called, "d")
    again = KernelSources(tmp_path).find(kernel.key, "d")
    assert again is not None
    assert tvm_ffi.structural_equal(again.func, kernel.func)
    assert replace(again, func=kernel.func, target=kernel.target) == called
    assert str(again.target) == str(kernel.target)
    compile_kernels([replace(again, library=None)], again.target)


def test_what_was_not_kept_is_not_found_and_a_broken_file_says_so(tmp_path, kernel):
    sources = KernelSources(tmp_path)
    assert sources.find(kernel.key, "d") is None
    sources.add(kernel, "d")
    (path,) = sources.folder.iterdir()
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InvalidDatasetError, match="delete the file"):
        sources.find(kernel.key, "d")


def test_old_features_are_read_anew_and_keep_families_and_times(tmp_path, kernel):
    folder = DatasetFolder(tmp_path)
    other = prepare_kernel(matmul(8, 8, 8), kernel.target, "product")
    for known in (kernel, other):
        KernelSources(tmp_path).add(known, "d")
        record = add_kernel(folder, known, "d", ("lenet", "mlp"))
        old = replace(record, feature_set="tir-v0", features=(1.0,))
        folder.add(old, ("one",))
        folder.measurements.add(Measurement(known.key, "d", "x", 5.0, 5, 5, "thread", ((5.0,),)))
    with pytest.raises(InvalidDatasetError, match="costs refresh"):
        DatasetFolder(tmp_path).load()
    assert refresh_features(DatasetFolder(tmp_path)) == (2, 0)
    assert refresh_features(DatasetFolder(tmp_path)) == (0, 0)
    data = DatasetFolder(tmp_path).load()
    assert data.table.feature_set == FEATURE_SET
    assert data.families == (("lenet", "mlp"),) * 2
    assert np.isfinite(data.table.values).all()


def test_kernels_without_source_are_counted(tmp_path, kernel):
    folder = DatasetFolder(tmp_path)
    record = add_kernel(folder, kernel, "d", ("lenet",))
    folder.add(replace(record, feature_set="tir-v0"), ("one",))
    assert refresh_features(DatasetFolder(tmp_path)) == (0, 1)


def test_a_dataset_without_kernels_has_nothing_to_renew(tmp_path):
    with pytest.raises(InvalidDatasetError, match="expected kernels, found none"):
        refresh_features(DatasetFolder(tmp_path / "missing"))
