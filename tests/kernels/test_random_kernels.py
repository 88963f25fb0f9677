"""Random kernels compute what numpy computes: machine code, and CUDA on an emulated GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm.support import cc

from tests.kernels.emulated_gpu import EmulatedGpu
from tests.kernels.kernels import NATIVE, run_kernel
from tests.kernels.random_kernels import RandomKernel, random_kernel
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target

GPU = resolve_target("cuda -arch=sm_80")
needs_compiler = pytest.mark.skipif(cc.get_cc() is None, reason="needs a C++ compiler")


def kernels(first: int, count: int) -> dict[int, RandomKernel]:
    found = {seed: random_kernel(seed) for seed in range(first, first + count)}
    return {seed: kernel for seed, kernel in found.items() if kernel is not None}


def require_equal(seed: int, kernel: RandomKernel, found: list[np.ndarray]) -> None:
    for array, expected in zip(found, kernel.expected, strict=True):
        np.testing.assert_array_equal(array, expected, err_msg=f"seed {seed}")


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(25, 1000, 25))]
)
def test_machine_code(first: int) -> None:
    for seed, kernel in kernels(first, 25).items():
        require_equal(seed, kernel, run_kernel(kernel.func, NATIVE, *kernel.inputs))


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_an_emulated_gpu(first: int, tmp_path: Path) -> None:
    given = kernels(first, 20)
    prepared = {seed: prepare_kernel(each.func, GPU, f"{seed}") for seed, each in given.items()}
    gpu = EmulatedGpu(list(prepared.values()), tmp_path)
    for seed, kernel in given.items():
        require_equal(seed, kernel, gpu.run(prepared[seed], *kernel.inputs))
