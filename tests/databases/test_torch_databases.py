"""PyTorch's own databases: imported and equal, or refused by name, in values and gradients."""

from __future__ import annotations

import pytest

from tests.databases.torch_judge import judge
from tests.databases.torch_samples import module_samples, modules, operator_samples, operators
from tests.databases.verdict import Status

STRIDE = 64
"""Every so many operators one is in the fast share, of which the first sample is judged."""

_WRONG = (Status.DIFFERENT, Status.CRASHED)


def _wrong(name: str, samples: list) -> list[str]:
    return [f"{name}: {reason}" for status, reason in judge(name, samples) if status in _WRONG]


def test_a_share_of_the_operators_is_equal_or_refused() -> None:
    names = operators()[::STRIDE]
    samples = [next(operator_samples(name), None) for name in names]
    given = [one for one in samples if one is not None]
    for start in range(0, len(given), 12):
        assert not _wrong("some operators", given[start : start + 12])


@pytest.mark.slow
@pytest.mark.parametrize("name", operators())
def test_every_sample_of_an_operator_is_equal_or_refused(name: str) -> None:
    samples = list(operator_samples(name))
    for start in range(0, len(samples), 12):
        assert not _wrong(name, samples[start : start + 12])


@pytest.mark.slow
@pytest.mark.parametrize("name", modules())
def test_every_sample_of_a_module_is_equal_or_refused(name: str) -> None:
    samples = list(module_samples(name))
    for start in range(0, len(samples), 12):
        assert not _wrong(name, samples[start : start + 12])
