"""What runs on a GPU runs on the fake one, in a process that finds its libraries and compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tvm.support import cc

from tests.gpu.fake_gpu import build_fake_gpu

pytestmark = pytest.mark.skipif(cc.get_cc() is None, reason="needs a C++ compiler")
_TESTS = Path(__file__).parent / "on_gpu"


def run_on_the_fake(folder: Path, cache: Path, *chosen: str) -> None:
    """Run tests; without a `cache` that can be written, the kernels of a step are compiled together."""
    environment = {**build_fake_gpu(folder), "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", "pytest", str(_TESTS), "-q", "-n", "0", "-m", "gpu", *chosen]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=_TESTS.parents[2]
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_kernels_and_a_step_with_pages_in_memory_of_the_host(tmp_path: Path) -> None:
    nowhere = tmp_path / "file" / "cache"
    nowhere.parent.touch()
    run_on_the_fake(tmp_path / "fake", nowhere, "-k", "few_layers or test_kernels and not doctor")


@pytest.mark.slow
def test_every_step(tmp_path: Path) -> None:
    run_on_the_fake(tmp_path / "fake", tmp_path / "cache")
