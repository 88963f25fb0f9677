"""Indices that are columns of an input, or are computed from several: in range for each, else NaN."""

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tvm_xengine.errors import InvalidInputError, NotFiniteError

BATCH, COLUMNS = 2, 4


class Lookups(nn.Module):
    """Tables of 3 and 6 rows for the outer columns, and a place that the inner ones add up to."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tables = nn.ModuleList([nn.Embedding(rows, 4) for rows in (3, 6)])
        self.grid = nn.Parameter(torch.randn(4, 5))
        self.out = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.tables[0](x[:, 0]) + self.tables[1].weight[x[:, 3]]
        return self.out(found + self.grid[x[:, 1] + x[:, 2], x[:, 1] - x[:, 2]][:, None])


def is_taken(x: np.ndarray) -> bool:
    """Whether PyTorch takes an input."""
    try:
        Lookups()(torch.tensor(x))
    except IndexError:
        return False
    return True


def test_what_names_no_place_is_refused_where_it_stands_or_undone_by_the_guard() -> None:
    given = torch.zeros(BATCH, COLUMNS, dtype=torch.int64)
    step = xe.compile(Lookups(), given, costs="roofline").guard()
    labels = np.array([0, 1])
    for place in np.ndindex(BATCH, COLUMNS):
        for value in (-7, -6, -1, 2, 3, 5, 6):
            x = np.zeros((BATCH, COLUMNS), np.int64)
            x[place] = value
            if is_taken(x):
                assert np.isfinite(step.step(x=x, labels=labels))
            elif place[1] in (0, 3):
                with pytest.raises(InvalidInputError, match=r"x must be in .* at \(., .\), got"):
                    step.step(x=x, labels=labels)
            else:
                with pytest.raises(NotFiniteError):
                    step.step(x=x, labels=labels)
    inside_of_the_flat_grid = np.array([[0, 3, -2, 0]] * BATCH)
    assert not is_taken(inside_of_the_flat_grid)
    with pytest.raises(NotFiniteError):
        step.step(x=inside_of_the_flat_grid, labels=labels)
