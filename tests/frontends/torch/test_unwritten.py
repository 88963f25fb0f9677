"""What PyTorch leaves unwritten."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tests.vm import computed
from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.training.forward.evaluation import evaluation_module


class _Unwritten(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.empty(4) + torch.empty_strided((4,), (1,))
        return x * 2 + rows + x.new_empty((4,)) + torch.empty_like(x)


def test_tensors_that_nothing_writes_are_zero_in_every_import():
    model = from_torch_export(torch.export.export(_Unwritten(), (torch.zeros(2, 4),)))
    assert not model.constants, "no garbage is kept as a constant"
    (made,) = computed(evaluation_module(model), [np.ones((2, 4), "float32")])
    np.testing.assert_array_equal(made, np.full((2, 4), 2.0))
