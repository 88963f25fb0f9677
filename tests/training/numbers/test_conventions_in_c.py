"""Ties, bounds, hidden rows and NaN in reductions, pooling and attention: C keeps PyTorch's conventions."""

from __future__ import annotations

import warnings
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tests.aot.test_package import Session
from tests.frontends.torch.test_conventions import OTHERS, Function

SHARES = 4
"""A compilation of all at once takes too long to be of use when one fails."""

pytestmark = pytest.mark.slow


def cases(share: int) -> dict[str, tuple[Function, torch.Tensor]]:
    """Those that work in float32, as C computes."""
    found = {}
    for name, (function, x) in OTHERS.items():
        try:
            made = function(x.float().requires_grad_())
        except RuntimeError:  # tensors of float64 inside
            continue
        if made.dtype is torch.float32 and made.requires_grad:
            found[name] = (function, x.float())
    return dict(list(found.items())[share::SHARES])


class Values(nn.Module):
    """What each function makes of its numbers; -0.0 moves none of them."""

    def __init__(self, share: int) -> None:
        super().__init__()
        self.parts = list(cases(share).values())
        self.w = nn.Parameter(torch.full((len(numbers(share)[0]),), -0.0))

    def forward(self, row: torch.Tensor) -> torch.Tensor:
        parts = (row[0] + self.w).split([prod(x.shape) for _, x in self.parts])
        made = [
            function(part.view(x.shape))
            for (function, x), part in zip(self.parts, parts, strict=True)
        ]
        return torch.cat([one.flatten() for one in made])[None]


class Sum(Values):
    """The gradient of `w` is that of each function's sum."""

    def forward(self, row: torch.Tensor) -> torch.Tensor:
        return super().forward(row).sum()


def numbers(share: int) -> torch.Tensor:
    return torch.cat([x.flatten() for _, x in cases(share).values()])[None]


def session(kind: type[Values], share: int, folder: Path) -> Session:
    options = {} if kind is Sum else {"loss": "mse"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = xe.training_step(kind(share), numbers(share), optimizer=xe.SGD(1.0), **options)
    report = xe.export_for_target(made, folder / "package", regions={"sram": "4MiB"})
    opened = Session(report, folder, f"-D{report.package.macro}_NAN_GUARD=0")
    assert opened.init() == opened.call("state_reset") == 0
    return opened


def differences(share: int, found: np.ndarray, wanted: np.ndarray, sizes: list[int]) -> list[str]:
    """Of each function by itself."""
    places = np.cumsum(sizes)[:-1]
    parts = (np.split(np.ravel(one), places) for one in (found, wanted))
    return [
        f"{name}: {a.tolist()} instead of {b.tolist()}"
        for name, a, b in zip(cases(share), *parts, strict=True)
        if not np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    ]


@pytest.mark.parametrize("share", range(SHARES))
def test_packages_in_c_keep_the_conventions(share: int, tmp_path: Path) -> None:
    need_tools("host")
    row, module = numbers(share), Sum(share)
    module(row).backward()
    assert module.w.grad is not None
    wanted = Values(share)(row).detach().numpy()
    values, gradients = (session(kind, share, tmp_path / kind.__name__) for kind in (Values, Sum))
    found = np.zeros(wanted.shape, np.float32)
    assert values.call("eval", row.numpy(), found) == 0
    made = [prod(function(x).shape) for function, x in cases(share).values()]
    wrong = differences(share, found, wanted, made)
    assert gradients.call("train_step", row.numpy(), np.zeros(1, np.float32)) == 0
    given = [prod(x.shape) for _, x in cases(share).values()]
    wrong += differences(share, -gradients.state("w"), module.w.grad.numpy(), given)
    assert not wrong, "\n".join(wrong)
    assert len(made) > 3
