"""Steps on a GPU, beside memory of the host or a processor, compute what a processor computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tvm_xengine as xe
from tests.runtime.steps import NETWORKS, batches

pytestmark = pytest.mark.gpu

_GPU = xe.Device("gpu", "cuda")
_RAM = xe.Device("ram", None)
_CPU = xe.Device("cpu", "llvm -mcpu=native", kernels=("tir",))
_STEPS = 3


def _linked(*pairs: tuple[str, str]) -> tuple[xe.Link, ...]:
    return tuple(xe.Link(a, b, 10.0, 20.0) for pair in pairs for a, b in (pair, pair[::-1]))


def _few_layers() -> dict[str, Any]:
    layers = [torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 5))
    return {"model": model, "example_inputs": torch.zeros(32, 64), "loss": "cross_entropy"}


_NETWORKS = {**NETWORKS, "few layers": _few_layers}


def gpu_platform(name: str, folder: Path) -> xe.Platform:
    """A GPU alone, with a pool in memory of the host, with a processor, or with that and a file."""
    disk = xe.Device("disk", None, folder=str(folder))
    match name:
        case "alone":
            return xe.Platform((_GPU,))
        case "ram":
            return xe.Platform((_GPU, _RAM), _linked(("gpu", "ram")))
        case "state in ram":
            return xe.Platform((_GPU, _RAM), _linked(("gpu", "ram")), home="ram")
        case "cpu":
            return xe.Platform((_CPU, _GPU), _linked(("cpu", "gpu")))
        case "cpu and file":
            links = _linked(("cpu", "gpu"), ("cpu", "disk"))
            return xe.Platform((_CPU, _GPU, disk), links, home="disk")
    raise ValueError(name)


def trained(
    network: str, platform: xe.Platform, **options: Any
) -> tuple[list[float], dict[str, Any]]:
    """Losses of a few steps, and the state behind them."""
    torch.manual_seed(0)
    step = xe.compile(
        platform=platform, costs="roofline", time_limit_s=3.0, **_NETWORKS[network](), **options
    )
    found = []
    for _, batch in zip(range(_STEPS), batches(step), strict=False):
        found.append(float(step(**batch)))
    return found, {name: np.asarray(value) for name, value in step.saved_state().items()}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return {}


CASES = [
    ("few layers", "ram", {"budget": 0.7, "objective": "makespan"}),
    ("mlp", "alone", {}),
    ("mlp", "ram", {"budget": 0.6}),
    ("mlp", "ram", {"budget": 0.6, "objective": "makespan"}),
    ("mlp", "state in ram", {"budget": 0.6, "objective": "makespan"}),
    ("mlp", "cpu", {"budget": 0.6}),
    ("mlp", "cpu", {"budget": 0.6, "objective": "makespan"}),
    ("mlp", "cpu and file", {"budget": 0.8, "objective": "makespan"}),
    ("batch norms in micro-batches", "alone", {}),
    ("batch norms in micro-batches", "ram", {"budget": 0.6, "objective": "makespan"}),
    ("dropout and Adam", "alone", {}),
    ("dropout and Adam", "cpu", {"budget": 0.6}),
    ("attention", "ram", {"budget": 0.6}),
    ("recurrent", "alone", {}),
    ("lenet", "ram", {"budget": 0.6, "objective": "makespan"}),
]


@pytest.mark.parametrize(
    ("network", "on", "options"),
    CASES,
    ids=[f"{'_'.join(n.split())}-{on}-{'-'.join(map(str, o.values()))}" for n, on, o in CASES],
)
def test_a_step_computes_what_a_processor_computes(
    network: str, on: str, options: dict[str, Any], tmp_path: Path, expected: dict[str, Any]
) -> None:
    if network not in expected:
        expected[network] = trained(network, xe.Platform((xe.Device("cpu", "llvm -mcpu=native"),)))
    losses, state = trained(network, gpu_platform(on, tmp_path), **options)
    wanted_losses, wanted = expected[network]
    np.testing.assert_allclose(losses, wanted_losses, rtol=1e-4)
    for name, value in wanted.items():
        # A gradient that is zero in exact arithmetic, as of a bias before a batch norm, is noise.
        atol = 1e-6 + 1e-4 * float(np.abs(value).max())
        np.testing.assert_allclose(state[name], value, rtol=0, atol=atol, err_msg=name)
