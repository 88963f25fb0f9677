"""Gradients of a parameter that several ops read are told apart by the op."""

import torch
from torch import nn

from tests.training.autograd import exported
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.kernel_calls import read_origins
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.training.build import build_training_step


class Tied(nn.Module):
    """A table of tokens whose rows are the weights of the classifier, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(x))


def test_both_gradients_of_a_tied_weight_keep_their_op_also_when_fused() -> None:
    step = build_training_step(exported(Tied(), torch.zeros(3, dtype=torch.int64)))
    made = read_origins(step.function)
    assert all(name.startswith("table_weight_grad") for name in made)
    of_head, of_table = sorted(op for (op,) in made.values())
    assert of_head.startswith("head") and of_table.startswith("table")
    lowered = read_origins(LowerToKernels(TRAIN_STEP)(step.mod)[TRAIN_STEP])
    known = {part for parts in lowered.values() for part in parts}
    assert {of_head, of_table} <= known
