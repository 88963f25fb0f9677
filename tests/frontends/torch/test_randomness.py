"""Random numbers of PyTorch are drawn anew in every step, from the right distribution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from tests.shares import share
from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tests.vm import computed
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.forward.evaluation import evaluation_module
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.recipe import Recipe

SHAPE = (40, 25)
LEAST_PROBABILITY = 1e-3

Draw = Callable[[torch.Tensor], torch.Tensor]

CONTINUOUS: dict[str, tuple[Draw, object]] = {
    "rand": (lambda _: torch.rand(SHAPE), stats.uniform()),
    "rand_like": (torch.rand_like, stats.uniform()),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(-3, 2), stats.uniform(-3, 5)),
    "randn": (lambda _: torch.randn(*SHAPE), stats.norm()),
    "randn_like": (torch.randn_like, stats.norm()),
    "normal": (lambda _: torch.normal(2.0, 0.5, SHAPE), stats.norm(2, 0.5)),
    "normal_": (lambda x: torch.empty_like(x).normal_(-1, 3), stats.norm(-1, 3)),
    "normal of tensors": (lambda x: torch.normal(3 * x, 0.25 * x), stats.norm(3, 0.25)),
    "normal of a mean": (lambda x: torch.normal(-x, 2.0), stats.norm(-1, 2)),
    "rrelu": (lambda x: F.rrelu(-x, 0.25, 0.75, training=True), stats.uniform(-0.75, 0.5)),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(0.25), stats.expon(scale=4)),
}


class Drawn(nn.Module):
    """Adds what is drawn to a parameter, whose gradient shows it where x is 1."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.draw = draw
        self.weight = nn.Parameter(torch.zeros(SHAPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x + self.draw(x)


def drawn(draw: Draw, seed: int = 3) -> list[NDArray[np.float32]]:
    """What the first two steps draw, given ones."""
    x, target = torch.ones(SHAPE), np.zeros(SHAPE, "float32")
    model = exported(Drawn(draw).train(), x)
    run = ReferenceRun(build_step_by_recipe(model, Recipe(loss=MEAN_SQUARED_ERROR), seed=seed))
    made = []
    for _ in range(2):
        run.state["weight_velocity"] = np.zeros(SHAPE, "float32")
        run(x.numpy(), target, lr=0.0)
        made.append(run.gradients()["weight"] * target.size / 2)
    return made


FAST = ("rand", "normal_", "normal of tensors", "rrelu", "exponential_")


@pytest.mark.parametrize("name", share(CONTINUOUS, FAST))
def test_numbers_are_those_of_the_distribution_and_new_in_every_step(name: str) -> None:
    draw, distribution = CONTINUOUS[name]
    steps = drawn(draw)
    for values in steps:
        assert stats.kstest(values.ravel(), distribution.cdf).pvalue > LEAST_PROBABILITY  # type: ignore[attr-defined]
    assert abs(np.corrcoef(steps[0].ravel(), steps[1].ravel())[0, 1]) < 0.1


def test_draws_of_one_step_are_independent() -> None:
    def two(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.randn_like(x)[:20], torch.randn_like(x)[:20]])

    values, _ = drawn(two)
    assert abs(np.corrcoef(values[:20].ravel(), values[20:].ravel())[0, 1]) < 0.15


def test_another_seed_draws_other_numbers() -> None:
    assert not np.isin(drawn(torch.randn_like, seed=3)[0], drawn(torch.randn_like, seed=4)[0]).all()


MASKS: dict[str, tuple[Draw, float, float, tuple[int, ...]]] = {
    "bernoulli_": (lambda x: torch.empty_like(x).bernoulli_(0.3), 0.3, 1.0, SHAPE),
    "bernoulli": (lambda x: torch.bernoulli(0.3 * x), 0.3, 1.0, SHAPE),
    "never": (lambda x: torch.empty_like(x).bernoulli_(0.0), 0.0, 1.0, SHAPE),
    "always": (lambda x: torch.empty_like(x).bernoulli_(1.0), 1.0, 1.0, SHAPE),
    "whole channels": (
        lambda x: F.dropout2d(x.view(40, 5, 5, 1), 0.4).view(SHAPE),
        0.6,
        1 / 0.6,
        (40, 5, 1),
    ),
    "whole samples": (
        lambda x: x * torch.empty(40, 1).bernoulli_(0.7).div_(0.7),
        0.7,
        1 / 0.7,
        (40, 1),
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_keep_their_share(name: str) -> None:
    draw, share, kept, blocks = MASKS[name]
    steps = [values.reshape(*blocks[:-1], -1) for values in drawn(draw)]
    for values in steps:
        count = values.size if blocks == SHAPE else int(np.prod(blocks))
        if blocks != SHAPE:  # all of a block is kept, or nothing
            np.testing.assert_array_equal(values.min(-1), values.max(-1))
        assert (np.isclose(values, kept, rtol=1e-6) | (values == 0)).all()
        deviation = np.sqrt(share * (1 - share) / count)
        assert (values != 0).mean() == pytest.approx(share, abs=4 * deviation)
    assert share in (0, 1) or not np.array_equal(*steps)


WEIGHTS = torch.tensor([1.0, 4.0, 0.0, 2.0, 3.0])

INTEGERS: dict[str, tuple[Draw, list[float]]] = {
    "randint": (lambda _: torch.randint(5, SHAPE).float(), [0.2] * 5),
    "randint, low": (lambda _: torch.randint(-2, 3, SHAPE).float() + 2, [0.2] * 5),
    "randint_like": (lambda x: torch.randint_like(x, 4), [0.25] * 4 + [0.0]),
    "multinomial": (
        lambda _: torch.multinomial(WEIGHTS.expand(40, 5), 25, replacement=True).float(),
        [0.1, 0.4, 0.0, 0.2, 0.3],
    ),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_as_likely_as_they_should_be(name: str) -> None:
    draw, shares = INTEGERS[name]
    steps = drawn(draw)
    for values in steps:
        counts = np.bincount(np.rint(values).astype(int).ravel(), minlength=5)
        wanted = np.array(shares) * values.size
        assert (counts[wanted == 0] == 0).all()
        found = stats.chisquare(counts[wanted > 0], wanted[wanted > 0])
        assert found.pvalue > LEAST_PROBABILITY
    assert not np.array_equal(*steps)


def test_a_draw_without_replacement_repeats_nothing() -> None:
    def draw(_: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(torch.arange(1.0, 26.0).expand(40, 25), 25).float()

    values, _ = drawn(draw)
    np.testing.assert_array_equal(np.sort(np.rint(values), 1), np.tile(np.arange(25), (40, 1)))
    assert values[:, :5].mean() > values[:, -5:].mean() + 2  # likely ones come first


def test_evaluation_draws_what_lies_in_the_middle() -> None:
    def draws(x: torch.Tensor) -> torch.Tensor:
        mask = torch.empty(40, 1).bernoulli_(0.7).div_(0.7)
        return x * mask + torch.randn_like(x) + F.dropout2d(x[..., None, None], 0.4).view(SHAPE)

    x = torch.randn(SHAPE)
    model = exported(Drawn(draws).train(), x)
    (made,) = computed(evaluation_module(model), [x.numpy(), *model.state.values()])
    np.testing.assert_allclose(made, 2 * x.numpy(), rtol=1e-5, atol=1e-5)
