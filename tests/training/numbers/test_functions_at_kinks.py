"""All functions of elements in PyTorch's database at zeros, bounds, infinities and NaN, compiled.

`tests.databases.test_torch_kinks` judges what the importer makes of them; here are the kernels of
oneDNN and of the generator, and those in C, in float32.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing._internal.opinfo.core import UnaryUfuncInfo

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tests.aot.test_package import Session
from tests.databases.test_torch_kinks import INCONSISTENT, KINKS
from tests.databases.torch_samples import op_infos

ROW = torch.tensor([KINKS])
CASTS = ("bfloat16", "half", "double", "float", "to")
"""Operators that give elements of another type."""

RANDOM = ("nn.functional.rrelu",)
SHARES = 8
"""A compilation of all at once takes too long to be of use when one fails."""

pytestmark = pytest.mark.slow


def functions(share: int) -> dict[str, nn.Module]:
    """Those with a gradient in float32, of one result."""
    torch.manual_seed(0)  # some options are drawn
    made: dict[str, nn.Module] = {}
    for name, info in op_infos().items():
        if not isinstance(info, UnaryUfuncInfo) or name in (*INCONSISTENT, *CASTS, *RANDOM):
            continue
        if torch.float32 not in info.dtypes or not info.supports_autograd:
            continue
        made[name] = _Function(info.op, info.sample_kwargs("cpu", torch.float32, ROW)[0])
    named = [(name, one) for name, one in made.items() if one.has_a_gradient()]
    return dict(named[share::SHARES])


class _Function(nn.Module):
    def __init__(self, function: object, options: dict[str, object]) -> None:
        super().__init__()
        self.function, self.options = function, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, **self.options)

    def has_a_gradient(self) -> bool:
        try:
            made = self(ROW.clone().requires_grad_())
        except (RuntimeError, TypeError):  # functions that the database calls otherwise
            return False
        is_alike = isinstance(made, torch.Tensor) and made.shape == ROW.shape
        return is_alike and made.dtype is torch.float32 and made.requires_grad


class Values(nn.Module):
    """What each function makes of the row; -0.0 moves no number, and keeps the sign of zeros."""

    def __init__(self, share: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(functions(share).values())
        self.w = nn.Parameter(torch.full((len(self.parts), ROW.shape[1]), -0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([of(x + self.w[k]) for k, of in enumerate(self.parts)], 1)


class Sum(Values):
    """The gradient of `w` is the derivative of each function at each number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).sum()


def _expected(share: int) -> tuple[np.ndarray, np.ndarray]:
    module = Sum(share)
    module(ROW).backward()
    assert module.w.grad is not None
    return Values(share)(ROW).detach().numpy(), module.w.grad.numpy()


def _training(kind: type[Values], share: int) -> xe.Training:
    options = {} if kind is Sum else {"loss": "mse"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xe.training_step(kind(share), ROW, optimizer=xe.SGD(1.0), **options)


def _compare(share: int, found: np.ndarray, wanted: np.ndarray) -> None:
    """Each function by itself."""
    names = list(functions(share))
    rows = (np.reshape(one, (len(names), -1)) for one in (found, wanted))
    wrong = [
        f"{name}: {a.tolist()} instead of {b.tolist()}"
        for name, a, b in zip(names, *rows, strict=True)
        if not np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    ]
    assert not wrong, "\n".join(wrong)
    assert len(names) > 6


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("kernels", [("onednn", "tir")], ids="-".join)
def test_compiled_kernels_are_equal(kernels: tuple[str, ...], share: int) -> None:
    (device,) = xe.processor().devices
    platform = xe.Platform(devices=(replace(device, kernels=kernels),))
    values, gradients = (
        xe.build(lowered, xe.plan(xe.make_problem(lowered, costs="roofline"), solver="greedy"))
        for lowered in (xe.lower(_training(kind, share), platform) for kind in (Values, Sum))
    )
    expected = _expected(share)
    _compare(share, values.predict(ROW), expected[0])
    gradients(ROW)
    _compare(share, -gradients.state_dict()["w"], expected[1])


@pytest.mark.parametrize("share", range(SHARES))
def test_packages_in_c_are_equal(share: int, tmp_path: Path) -> None:
    need_tools("host")
    values, gradients = (_session(kind, share, tmp_path / kind.__name__) for kind in (Values, Sum))
    expected = _expected(share)
    found = np.zeros(expected[0].shape, np.float32)
    assert values.call("eval", ROW.numpy(), found) == 0
    _compare(share, found, expected[0])
    assert gradients.call("train_step", ROW.numpy(), np.zeros(1, np.float32)) == 0
    _compare(share, -gradients.state("w"), expected[1])


def _session(kind: type[Values], share: int, folder: Path) -> Session:
    training = _training(kind, share)
    report = xe.export_for_target(training, folder / "package", regions={"sram": "4MiB"})
    session = Session(report, folder, f"-D{report.package.macro}_NAN_GUARD=0")
    assert session.init() == session.call("state_reset") == 0
    return session
