"""A step in slices of its batch computes what the whole step does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tvm_xengine.api import with_recipe
from tvm_xengine.frontends.evaluation_mode import in_evaluation_mode
from tvm_xengine.passes.slices.slice_batch import slice_batch
from tvm_xengine.relax_ir.dataflow import single_block
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut

BATCH = 8


class Residual(nn.Module):
    """Batch norms with and without what a residual block adds, pooling over space, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.body = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1)
        )
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.stem(x))
        h = torch.relu(self.norm(self.body(h)) + h)
        return self.head(nn.functional.dropout(h.mean((2, 3)), 0.25, self.training))


class Words(nn.Module):
    """Positions that all samples share, attention, and views that join the batch with time."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Parameter(torch.randn(6, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.words(tokens) + self.places).reshape(-1, 8))


def images() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return Residual(), torch.randn(BATCH, 3, 6, 6), torch.randint(0, 5, (BATCH,))


def words() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return Words(), torch.randint(0, 11, (BATCH, 6)), torch.randint(0, 11, (BATCH * 6,))


def lowered_step(module: nn.Module, x: torch.Tensor, loss: str = "cross_entropy") -> xe.Lowered:
    return xe.lower(xe.training_step(module, x, loss=loss), xe.processor())


def built(lowered: xe.Lowered) -> xe.Step:
    problem = xe.make_problem(lowered, costs="roofline")
    return xe.build(lowered, xe.plan(problem, solver="keep-all"))


def points() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    return module, torch.randn(BATCH, 4), torch.randint(0, 3, (BATCH,))


EQUAL = [BatchCut((BATCH // parts,) * parts, (0,) * parts) for parts in (2, 8)]
SHARES = [BatchCut.in_shares((5, 3)), BatchCut.in_shares((1, 4, 3), (1, 2, 1))]


@pytest.mark.parametrize(
    ("make", "cut"),
    [
        (points, EQUAL[1]),
        pytest.param(points, SHARES[1], marks=pytest.mark.slow),
        (points, replace(SHARES[1], bucket_bytes=256)),
        *(
            pytest.param(make, cut, marks=pytest.mark.slow)
            for make in (images, words)
            for cut in (*EQUAL, *SHARES, replace(SHARES[0], bucket_bytes=1 << 12))
        ),
    ],
)
def test_slices_train_as_the_whole_batch_does(make, cut: BatchCut) -> None:
    module, x, y = make()
    lowered = lowered_step(module, x)
    sliced = lowered.with_cut(cut)
    assert sliced is not None
    whole, slices = built(lowered), built(sliced)
    for _ in range(2):
        assert float(slices(x, y)) == pytest.approx(float(whole(x, y)), rel=1e-5)
    for name, value in whole.state_dict().items():
        np.testing.assert_allclose(
            slices.state_dict()[name], value, rtol=2e-4, atol=2e-6, err_msg=name
        )


def test_every_call_on_the_batch_is_divided_but_for_what_mixes_samples() -> None:
    lowered = lowered_step(*images()[:2])
    sliced = slice_batch(lowered.step.mod, "train_step", BatchCut((2,) * 4, (0,) * 4))
    assert sliced is not None
    names = [binding.var.name for binding in single_block(sliced.mod["train_step"]).bindings]
    assert not [name for name in names if "joined" in name]
    once = {name for name, calls in sliced.calls.items() if len(calls) == 1}
    assert all(name.endswith(("_update", "_statistics", "next_step")) for name in once)


def test_a_slice_goes_on_to_its_gradients_before_the_next_one_begins() -> None:
    lowered = xe.lower(xe.training_step("lenet", batch_size=BATCH), xe.processor())
    sliced = slice_batch(lowered.step.mod, "train_step", BatchCut((4, 4), (0, 0)))
    assert sliced is not None
    ops = [op.name for op in extract_graph(sliced.mod).graph.ops]
    assert ops.index("conv1_weight_grad_1of2") < ops.index("x_2of2")


@pytest.mark.slow
def test_a_gradient_that_reads_only_some_of_its_operands_is_divided() -> None:
    """That of a norm with running statistics and frozen scale reads neither data nor statistics' means."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.body = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
            self.norm = nn.BatchNorm2d(4).requires_grad_(False)
            self.head = nn.Linear(64, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.stem(x)
            return self.head(torch.relu(self.norm(self.body(h)) + h).flatten(1))

    torch.manual_seed(0)
    x, y = torch.randn(BATCH, 2, 4, 4), torch.randint(0, 3, (BATCH,))
    training = xe.training_step(Block(), x, loss="cross_entropy")
    used = replace(training.source, training=in_evaluation_mode(training.source.training))
    training = with_recipe(replace(training, source=used))
    lowered = xe.lower(training, xe.processor())
    sliced = lowered.in_slices(2)
    assert sliced is not None
    assert float(built(sliced)(x, y)) == pytest.approx(float(built(lowered)(x, y)), rel=1e-5)


def test_a_batch_that_the_slices_do_not_divide_stays_whole() -> None:
    lowered = xe.lower(xe.training_step("mlp", batch_size=6), xe.processor())
    assert lowered.in_slices(4) is None


@pytest.mark.slow
def test_the_graph_of_a_network_that_mixes_all_samples_keeps_its_numbers() -> None:
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.tanh(self.before(x))
            return self.after(torch.softmax(h @ h.T, 1) @ h.flip(0).cumsum(0))

    torch.manual_seed(0)
    module, x, y = Mixing(), torch.randn(BATCH, 4), torch.randint(0, 3, (BATCH,))
    lowered = lowered_step(module, x)
    sliced = lowered.in_slices(4)
    assert sliced is not None
    assert float(built(sliced)(x, y)) == pytest.approx(float(built(lowered)(x, y)), rel=1e-5)
