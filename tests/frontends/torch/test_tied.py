"""Parameters that share their memory are one parameter, as in GPT-2, whose head is its embedding."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.autograd import exported, worst_gradient_error
from tvm_xengine.frontends.torch.read import from_torch_export


class Tied(nn.Module):
    """Tokens to logits with one matrix, and one that only looks like it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.alike = nn.Parameter(torch.zeros(7, 4))
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = self.embedding(tokens) + nn.functional.embedding(tokens, self.alike)
        return self.head(rows).flatten(0, 1)


def test_the_gradients_of_all_uses_are_summed_under_the_first_name() -> None:
    torch.manual_seed(0)
    module, tokens = Tied().train(), torch.randint(0, 7, (2, 3))
    model = exported(module, tokens)
    assert set(model.parameters) == {"embedding_weight", "alike"}
    assert worst_gradient_error(model, module, tokens, torch.randint(0, 7, (6,))) < 1e-5


def test_a_saved_program_keeps_them_tied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = torch.export.export(Tied().train(), (torch.zeros(2, 3, dtype=torch.int64),))
    torch.export.save(program, tmp_path / "tied.pt2")
    model = from_torch_export(tmp_path / "tied.pt2")
    assert len(model.parameters) == 2
    assert "does not depend" not in caplog.text


def test_training_the_module_leaves_the_imported_model_as_it_was() -> None:
    module = nn.Linear(3, 2)
    model = exported(module, torch.randn(4, 3))
    before = module.weight.detach().numpy().copy()
    with torch.no_grad():
        module.weight += 1
    np.testing.assert_array_equal(model.parameters["weight"], before)
