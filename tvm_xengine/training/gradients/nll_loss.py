"""Gradient of the negative log likelihood, an op of losses that users write."""

from __future__ import annotations

from tvm_xengine.kernels.te.losses.nll_loss import nll_loss_backward, nll_loss_forward
from tvm_xengine.training.emitter import Emitter, Option, shape_of
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


def _nll_loss(emitter: Emitter, site: Site) -> Linearized:
    predictions, labels, *weights = site.operands
    shape = shape_of(predictions)
    axis = min(len(shape) - 1, 1)
    options: dict[str, Option] = {
        "axis": axis,
        "ignore_index": int(site.attrs.ignore_index),
        "reduction": str(site.attrs.reduction),
    }
    output, counted = emitter.call_many(
        nll_loss_forward,
        [predictions, labels, *weights],
        f"{site.name}_forward",
        (site.name, f"{site.name}_counted"),
        **options,
    )

    def pullback(gradients: Gradients) -> Gradients:
        gradient = emitter.call(
            nll_loss_backward,
            [gradients[0], labels, counted, *weights],
            site.grad_name(0),
            classes=shape[axis],
            **options,
        )
        return (gradient, *(None for _ in site.operands[1:]))

    return Linearized((output,), pullback)


RULES: dict[str, Rule] = {"relax.nn.nll_loss": _nll_loss}
