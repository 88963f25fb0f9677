"""Processes of this package load PyTorch where it is needed only."""

from __future__ import annotations

import subprocess
import sys

from tvm_xengine.processes.pools import worker_processes

CHECK = """
import sys
from tvm_xengine.processes.torch_later import load_torch_later
load_torch_later()
import tvm
assert "torch" not in sys.modules
import torch
tensor = tvm.runtime.from_dlpack(torch.arange(3.0))
assert tensor.numpy().tolist() == [0.0, 1.0, 2.0]
"""


def _loaded() -> set[str]:
    import tvm

    return {"torch", tvm.__name__} & sys.modules.keys()


def test_tvm_finds_no_pytorch_and_others_do() -> None:
    """When the first part holds without `load_torch_later`, TVM no longer imports it: delete that module."""
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_workers_load_none() -> None:
    with worker_processes(1) as executor:
        assert executor.submit(_loaded).result() == {"tvm"}
