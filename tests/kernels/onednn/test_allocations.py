"""A running step takes no memory for tensors, whoever computes its kernels."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from tvm.support import cc

from tests.kernels.onednn.onednn_twins import needs_onednn

COUNTER = Path(__file__).with_name("count_allocations.c")
LARGEST_BYTES = 16 * 1024
BYTES_PER_OP = 1024
"""Enough for frames of the virtual machine and argument lists of the library, not for tensors."""


@pytest.mark.slow
@pytest.mark.skipif(
    cc.get_cc() is None or platform.libc_ver()[0] != "glibc", reason="counts calls of glibc"
)
@needs_onednn
@pytest.mark.parametrize(
    "kernels",
    [["onednn", "tir"], ["tir"]],
    ids=lambda k: k[0],
)
def test_a_step_allocates_no_tensors(kernels: list[str], tmp_path: Path) -> None:
    library = tmp_path / "count.so"
    command = [cc.get_cc(), "-x", "c", "-O1", "-shared", "-fPIC", str(COUNTER), "-o", str(library)]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    arguments = [sys.executable, "-m", __name__, str(library), *kernels]
    done = subprocess.run(arguments, env=environment, check=True, capture_output=True, text=True)
    counted = json.loads(done.stdout.splitlines()[-1])
    assert counted["sources"] == sorted(kernels)
    assert counted["largest_bytes"] <= LARGEST_BYTES
    assert counted["total_bytes"] <= BYTES_PER_OP * counted["ops"]


def count_step(library: str, kernels: tuple[str, ...]) -> dict[str, object]:
    """Run a step of a network with every kind of convolution, and count what it allocates."""
    from tests.kernels.onednn.test_devices import batch_for, built, lowered, problem_of
    from tvm_xengine.compiler.plan import plan_keep_all
    from tvm_xengine.frontends.load import load_model
    from tvm_xengine.training.build import build_training_step

    counter = ctypes.CDLL(library)
    training = build_training_step(load_model("ds_cnn", batch_size=2))
    step = lowered(training, kernels)
    plan = plan_keep_all(problem_of(step), step.platform.home)
    executable = built(step, plan, training)
    executable.step(batch_for(executable, 0))
    counter.start_counting()
    executable.run()
    counter.stop_counting()
    return {
        "sources": sorted({kernel.source for kernel in step.kernels.values()}),
        "largest_bytes": counter.counted_largest_bytes(),
        "total_bytes": counter.counted_total_bytes(),
        "ops": len(step.extraction.graph.ops),
    }


if __name__ == "__main__":
    print(json.dumps(count_step(sys.argv[1], tuple(sys.argv[2:]))))  # noqa: T201
