"""Linear algebra of PyTorch: values and gradients are those of autograd, and C computes them too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tests.aot.test_package import Session
from tests.training.autograd import Operator, exported, worst_gradient_error
from tvm_xengine.errors import UnsupportedModelError

Function = Callable[[torch.Tensor], torch.Tensor]
linalg = torch.linalg


def definite(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + 2 * torch.eye(x.shape[-2], dtype=x.dtype)


def reconstructed(x: torch.Tensor) -> torch.Tensor:
    """What signs of singular vectors leave alone."""
    u, s, v = linalg.svd(x, full_matrices=False)
    return (u * s.sin().unsqueeze(-2)) @ v


def spectral(x: torch.Tensor) -> torch.Tensor:
    values, vectors = linalg.eigh(definite(x))
    return (vectors * values.log().unsqueeze(-2)) @ vectors.mT


def whitened(x: torch.Tensor) -> torch.Tensor:
    return linalg.solve_triangular(linalg.cholesky(definite(x)), x, upper=False)


OPERATORS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "inverse": (linalg.inv, (2, 4, 4)),
    "solutions from the left": (lambda x: linalg.solve(definite(x), x), (2, 3, 4)),
    "solutions from the right": (lambda x: linalg.solve(x, x[:, :2].cos(), left=False), (2, 4, 4)),
    "a vector's solution": (lambda x: linalg.solve(x, x[:, 0]), (4, 4)),
    "one matrix for a batch": (lambda x: linalg.solve(x[0], x.cos()), (3, 4, 4)),
    "determinants": (lambda x: torch.det(x) * torch.slogdet(x)[1], (2, 3, 4, 4)),
    "determinant of a singular matrix": (lambda x: torch.det(x.new_ones(3, 3) * x[0, 0]), (3, 3)),
    "logarithm of a determinant": (lambda x: torch.logdet(definite(x)), (2, 4, 4)),
    "Cholesky's factor": (lambda x: linalg.cholesky(definite(x)), (2, 4, 4)),
    "the upper one": (lambda x: linalg.cholesky(definite(x), upper=True), (4, 4)),
    "whitened rows": (whitened, (2, 3, 5)),
    "Gauss's factors, tall": (lambda x: torch.cat(torch.linalg.lu(x)[1:], -2), (2, 5, 3)),
    "Gauss's factors, wide": (lambda x: torch.linalg.lu(x)[2], (2, 3, 5)),
    "Householder's factors": (lambda x: torch.cat(linalg.qr(x), -2), (2, 5, 3)),
    "Householder's factors, wide": (lambda x: torch.cat(linalg.qr(x), -1), (2, 3, 5)),
    "singular values": (linalg.svdvals, (2, 3, 5)),
    "nuclear norm": (lambda x: linalg.matrix_norm(x, "nuc"), (2, 5, 3)),
    "spectral norm": (lambda x: linalg.matrix_norm(x, 2), (2, 3, 5)),
    "singular vectors": (reconstructed, (2, 5, 3)),
    "singular vectors, wide": (reconstructed, (3, 5)),
    "eigenvectors": (spectral, (2, 4, 3)),
    "pseudo-inverse": (linalg.pinv, (2, 5, 3)),
    "pseudo-inverse of rank 2": (lambda x: linalg.pinv(x[:, :2] @ x[:2]), (5, 5)),
    "exponential": (torch.matrix_exp, (2, 4, 4)),
    "least squares": (lambda x: linalg.solve(x.mT @ x, x.mT @ x[:, :1].cos()), (6, 3)),
}


FEW = (
    "solutions from the right",
    "determinants",
    "whitened rows",
    "singular vectors, wide",
    "eigenvectors",
)


pytestmark = pytest.mark.usefixtures("in_float64")


class Curved(Operator):
    """With its cosines beside it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = super().forward(x)
        return torch.cat([made, made.cos()], 1)


class All(nn.Module):
    """All functions side by side, since one compilation costs less than many."""

    def __init__(self, operators: list[Curved]) -> None:
        super().__init__()
        self.operators = nn.ModuleList(operators)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(
            [one(x[: one.weight.numel()].view_as(one.weight)) for one in self.operators], 1
        )


@pytest.mark.slow
def test_values_and_gradients_are_those_of_autograd() -> None:
    module = All([Curved(*OPERATORS[name]) for name in FEW])
    x = torch.randn(max(one.weight.numel() for one in module.operators))
    assert worst_gradient_error(exported(module, x), module, x, torch.tensor([1])) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_each_is_that_of_autograd(name: str) -> None:
    function, shape = OPERATORS[name]
    module, x = Curved(function, shape), torch.randn(shape)
    assert worst_gradient_error(exported(module, x), module, x, torch.tensor([1])) < 1e-8


def test_what_has_no_derivative_is_refused() -> None:
    module = Curved(lambda x: linalg.qr(x, "complete")[0], (5, 3))
    with pytest.raises(UnsupportedModelError, match="PyTorch has no gradient of this form"):
        x = torch.randn(5, 3)
        worst_gradient_error(exported(module, x), module, x, torch.tensor([1]))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.eye(3) + 0.1 * torch.randn(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = x.view(-1, 3, 3) * self.w
        parts = [of(a) for of in (linalg.inv, whitened, spectral, reconstructed, torch.matrix_exp)]
        return torch.cat([*(one.flatten(1) for one in parts), torch.det(a)[:, None]], 1)


@pytest.mark.slow
def test_a_package_in_c_evaluates_them(tmp_path: Path) -> None:
    need_tools("host")
    torch.set_default_dtype(torch.float32)
    module, rows = Small(), torch.randn(4, 9) + torch.eye(3).flatten()
    training = xe.training_step(module, rows, loss="mse", optimizer=xe.SGD(1e-3))
    report = xe.export_for_target(training, tmp_path / "package", regions={"sram": "1MiB"})
    session = Session(report, tmp_path)
    assert session.init() == 0
    assert session.call("state_reset") == 0
    expected = module(rows)
    found = np.zeros(tuple(expected.shape), np.float32)
    assert session.call("eval", rows.numpy(), found) == 0
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-3, atol=1e-4)
