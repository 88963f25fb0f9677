"""Gradients are compared in float64, where rounding hides no mistake."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def in_float64() -> Iterator[None]:
    """Modules and tensors that a test makes are of float64, and drawn alike in every run."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
