"""The model that is trained together with its loss, wherever the loss is written."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.model.kind_of_model import is_module
from tvm_xengine.model.losses import (
    LossLike,
    as_kernel_loss,
    check_loss_fits,
    example_target,
    in_pytorch,
    inferred_loss,
    is_kernel_loss,
    over_probabilities,
    resolved,
    takes_outputs_alone,
    warn_of_scores,
)
from tvm_xengine.model.source import Source, load_source, module_source
from tvm_xengine.relax_ir.forward_ops import outputs_of
from tvm_xengine.training.losses import Loss
from tvm_xengine.training.model_loss import ModelLoss

if TYPE_CHECKING:
    import torch

_logger = logging.getLogger(__name__)


def model_and_loss(
    model: Any, example_inputs: object, loss: LossLike, targets: object, **options: Any
) -> tuple[Source, Loss]:
    """The source of a model, and the loss of its training function.

    Parameters
    ----------
    targets
        What a loss written in PyTorch compares the outputs with; None takes a tensor like them.
    options
        As in `load_source`, for a model that is no module.
    """
    wanted = given = over_probabilities(resolved(loss), targets)
    if is_module(model):
        source, wanted = _module_source(model, example_inputs, wanted, targets)
        for note in source.training.notes:
            _logger.warning("%s: %s", source.training.name, note)
    else:
        source = model if isinstance(model, Source) else load_source(model, **options)
        wanted = inferred_loss(source.training) if wanted is None else wanted
        wanted = as_kernel_loss(wanted, source.training, targets)
    check_loss_fits(wanted, source.training)
    warn_of_scores(given, source.evaluation)
    return source, wanted


def _module_source(
    module: torch.nn.Module, inputs: object, loss: Any, targets: object
) -> tuple[Source, Any]:
    """The source of a module, and the loss of its training function."""
    if inputs is None:
        raise ValueError("a PyTorch module needs example_inputs: what it is called with")
    if loss is not None and is_kernel_loss(loss):
        return module_source(module, inputs, None, (), loss_inside=False), loss
    if loss is None:
        plain = module_source(module, inputs, None, (), loss_inside=False)
        if not _returns_loss(plain):
            return plain, inferred_loss(plain.training)
        if _is_loss_itself(plain):
            return plain, ModelLoss()
        return module_source(module, inputs, None, (), loss_inside=True), ModelLoss()
    given = _example_targets(module, inputs, loss, targets)
    try:
        source = module_source(module, inputs, loss, given, loss_inside=True)
        return source, ModelLoss(in_pytorch(loss), getattr(loss, "__name__", type(loss).__name__))
    except UnsupportedModelError as error:
        if targets is not None:
            raise
        raise UnsupportedModelError(
            f"{error}; the loss was tried with targets of shape {tuple(given[0].shape)}, so give"
            " example_targets if they have another shape or type"
        ) from error


def _returns_loss(source: Source) -> bool:
    """Whether the first tensor that a model returns is a scalar, or the one that it calls loss."""
    outputs = outputs_of(source.training.main)
    if not outputs[0].ty.ndim:
        return True
    if len(outputs) != source.outputs:
        return False
    made = source.restore(outputs)
    named = made.get("loss") if isinstance(made, Mapping) else getattr(made, "loss", None)
    return named is not None and not named.ty.ndim


def _is_loss_itself(source: Source) -> bool:
    """Whether a model that returns its loss returns nothing else, so that it need not be traced again."""
    outputs = outputs_of(source.training.main)
    return len(outputs) == source.outputs == 1 and source.restore(outputs) is outputs[0]


def _example_targets(
    module: torch.nn.Module, inputs: object, loss: Any, targets: object
) -> Sequence[Any]:
    import torch

    if targets is not None:
        return targets if isinstance(targets, list | tuple) else (targets,)
    if takes_outputs_alone(loss):
        return ()
    from tvm_xengine.frontends.torch.module import output_of

    output = output_of(module, inputs)
    if not isinstance(output, torch.Tensor):
        raise ValueError(
            "the module returns several tensors; give example_targets, what the loss compares with"
        )
    return (example_target(loss, output),)
