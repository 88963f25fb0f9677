"""PyTorch's own databases through our steps: our kernels, planned, in arenas full of garbage."""

from __future__ import annotations

import pytest

from tests.databases.step import evaluate_in_step
from tests.databases.test_torch_databases import AT_ONCE, wrong_samples
from tests.databases.torch_samples import module_samples, modules, operator_samples, operators

FAST = ("addmm", "amax", "cumprod", "index_put", "nn.functional.layer_norm", "std", "where")
"""An operator of each kind: products, folds, scans, indices, norms, statistics, elements."""


def test_a_sample_of_each_kind_of_operator_is_equal_in_a_step() -> None:
    samples = [next(operator_samples(name)) for name in FAST]
    assert not wrong_samples("some operators", samples, evaluate_in_step)


@pytest.mark.slow
@pytest.mark.parametrize("name", operators())
def test_every_sample_of_an_operator_is_equal_in_a_step(name: str) -> None:
    samples = list(operator_samples(name))
    for start in range(0, len(samples), AT_ONCE):
        assert not wrong_samples(name, samples[start : start + AT_ONCE], evaluate_in_step)


@pytest.mark.slow
@pytest.mark.parametrize("name", modules())
def test_every_sample_of_a_module_is_equal_in_a_step(name: str) -> None:
    samples = list(module_samples(name))
    for start in range(0, len(samples), AT_ONCE):
        assert not wrong_samples(name, samples[start : start + AT_ONCE], evaluate_in_step)
