"""No change of the process outlives a call of the library or of a command."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import tvm_xengine as xe
from tests.api.networks import perceptron
from tests.commands.in_process import run_command
from tests.conftest import Compile
from tvm_xengine.errors import UnsupportedModelError


def train(compile_step: Compile, _folder: Path) -> None:
    step = compile_step(perceptron(), torch.randn(4, 6), loss="cross_entropy")
    batches = [(torch.randn(4, 6), torch.randint(0, 5, (4,)))] * 2
    xe.fit(step, batches, epochs=1)
    step.eval()(batches[0][0])


def plan(_compile_step: Compile, folder: Path) -> None:
    options = ("--costs", "roofline", "--time-limit", "2", "--json", str(folder / "plan.json"))
    assert run_command("plan", "mlp", "--batch", "2", *options).returncode == 0


@pytest.mark.parametrize("call", [train, plan])
def test_environment_folder_threads_and_random_numbers_are_as_before(
    compile_step: Compile, tmp_path: Path, call: Callable[[Compile, Path], None]
) -> None:
    torch.manual_seed(0)
    call(compile_step, tmp_path)  # what is imported for the first time may set its own defaults

    def state() -> dict[str, object]:
        return {
            "environment": dict(os.environ),
            "folder": Path.cwd(),
            "threads of PyTorch": (torch.get_num_threads(), torch.get_num_interop_threads()),
            "cores": os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
            "signals": [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)],
            "random": (random.getstate(), str(np.random.get_state())),  # noqa: NPY002
            "errors of numpy": np.geterr(),
            "precision of PyTorch": (torch.get_default_dtype(), torch.is_grad_enabled()),
        }

    before = state()
    call(compile_step, tmp_path)
    assert state() == before


FIRST_CALL = """
import os, sys, warnings
import scipy.sparse, scipy.special, torch, tvm  # what they set by their imports is theirs
import tvm_xengine as xe

def state():
    return {**os.environ}, list(warnings.filters), sys.stdout, sys.stderr

before = state()
step = xe.compile(torch.nn.Linear(6, 5), torch.randn(4, 6), loss="mse", costs="roofline")
step(torch.randn(4, 6), torch.randn(4, 5))
step.eval()(torch.randn(4, 6))
for old, new in zip(before, state()):
    assert old == new, f"{old} became {new}"
"""


@pytest.mark.slow
def test_the_first_call_leaves_environment_and_warnings_as_they_were() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_module_that_cannot_be_exported_gets_a_sentence_and_prints_nothing(
    compile_step: Compile, capfd: pytest.CaptureFixture[str]
) -> None:
    class Branches(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return 2 * y if y.sum() > 0 else y

    with pytest.raises(UnsupportedModelError, match="reads the value of a tensor as a number"):
        compile_step(Branches(6, 5), torch.randn(4, 6), loss="mse")
    assert capfd.readouterr() == ("", "")


def test_the_environment_is_as_before_the_first_call(tmp_path: Path) -> None:
    before = dict(os.environ)
    plan(xe.compile, tmp_path)
    assert dict(os.environ) == before
