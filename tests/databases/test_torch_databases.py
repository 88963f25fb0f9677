"""PyTorch's own databases: imported and equal, or refused by name, in values and gradients."""

from __future__ import annotations

import pytest

from tests.databases.torch_judge import Evaluate, judge
from tests.databases.torch_samples import module_samples, modules, operator_samples, operators
from tests.databases.verdict import Status
from tests.databases.vjp import evaluate

STRIDE = 128
"""Every so many operators one is in the fast share, of which the first sample is judged."""

AT_ONCE = 12
"""Samples in one export."""

_WRONG = (Status.DIFFERENT, Status.CRASHED)


def wrong_samples(name: str, samples: list, run: Evaluate = evaluate) -> list[str]:
    """What is wrong with samples that are neither equal nor refused."""
    verdicts = judge(name, samples, run)
    return [f"{name}: {reason}" for status, reason in verdicts if status in _WRONG]


def test_a_share_of_the_operators_is_equal_or_refused() -> None:
    names = operators()[::STRIDE]
    samples = [next(operator_samples(name), None) for name in names]
    given = [one for one in samples if one is not None]
    for start in range(0, len(given), AT_ONCE):
        assert not wrong_samples("some operators", given[start : start + AT_ONCE])


@pytest.mark.slow
@pytest.mark.parametrize("name", operators())
def test_every_sample_of_an_operator_is_equal_or_refused(name: str) -> None:
    samples = list(operator_samples(name))
    for start in range(0, len(samples), AT_ONCE):
        assert not wrong_samples(name, samples[start : start + AT_ONCE])


@pytest.mark.slow
@pytest.mark.parametrize("name", modules())
def test_every_sample_of_a_module_is_equal_or_refused(name: str) -> None:
    samples = list(module_samples(name))
    for start in range(0, len(samples), AT_ONCE):
        assert not wrong_samples(name, samples[start : start + AT_ONCE])
