"""Turn a forward function into a training step."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.training.build import build_training_module
from tvm_xengine.training.recipe import Recipe


@tvm.transform.module_pass(opt_level=0, name="BuildTrainingGraph")
class BuildTrainingGraph:
    """Replace a module with ``main`` by one with ``train_step``.

    .. code-block:: python

        @R.function
        def main(x, w):
            y = R.matmul(x, w)
            return y

    becomes, with the mean squared error and plain gradient descent,

    .. code-block:: python

        @R.function
        def train_step(x, labels, lr, w):
            y = R.matmul(x, w)
            loss = R.call_tir(mean_squared_error_forward, (y, labels), ...)
            loss_backward = R.call_tir(mean_squared_error_backward, (y, labels), ...)
            w_grad = R.call_tir(batch_matmul, (x, loss_backward), ...)
            w_new = R.call_tir(sgd_update, (w, w_grad, lr), ...)
            return (loss, w_new)

    The function attributes ``tvm_xengine.roles``, ``num_results``, ``results`` and ``updates`` say
    what the parameters and results are (see `tvm_xengine.training.step`).

    Parameters
    ----------
    trainable
        Names of the parameters of ``main`` that are trained.
    num_inputs
        How many leading parameters of ``main`` come from a batch.
    recipe
        Loss, optimizer and what else there is to choose.
    """

    def __init__(
        self, trainable: Sequence[str], *, num_inputs: int = 1, recipe: Recipe | None = None
    ) -> None:
        self.trainable = tuple(trainable)
        self.num_inputs = num_inputs
        self.recipe = recipe or Recipe()

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if "main" not in [var.name_hint for var in mod.get_global_vars()]:
            names = [var.name_hint for var in mod.get_global_vars()]
            raise UnsupportedModelError(f"expected a Relax function main, found {names}")
        return build_training_module(mod["main"], self.num_inputs, self.trainable, self.recipe)
