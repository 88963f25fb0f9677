"""Decompositions for operators of which PyTorch's own compute something else than the operator does,
or have another derivative."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

_MEAN, _SUM = 1, 2
"""Reductions as PyTorch numbers them; 0 is none."""


def _multilabel_margin_loss(
    scores: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN
) -> torch.Tensor:
    """The labels of a row end at its first negative one; PyTorch's decomposition counts what follows."""
    x, labels = torch.atleast_2d(scores), torch.atleast_2d(target)
    classes = x.shape[1]
    counts = (labels < 0).to(torch.int64).cumsum(1) == 0
    places = torch.where(counts, labels, torch.zeros_like(labels))
    every = torch.arange(classes, device=x.device)
    hits = (places.unsqueeze(2) == every) & counts.unsqueeze(2)
    is_label = hits.any(1)
    margins = torch.relu(1 - x.gather(1, places).unsqueeze(2) + x.unsqueeze(1))
    pairs = counts.unsqueeze(2) & ~is_label.unsqueeze(1)
    lost = torch.where(pairs, margins, torch.zeros_like(margins)).sum((1, 2)) / classes
    if scores.dim() < 2:
        lost = lost[0]
    return _reduced(lost, reduction)


def _multilabel_margin_loss_forward(
    scores: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN
) -> tuple[torch.Tensor, torch.Tensor]:
    """With the mask of labels, which only PyTorch's backward pass reads."""
    return _multilabel_margin_loss(scores, target, reduction), torch.zeros_like(scores)


def _binary_cross_entropy_with_logits(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    """With PyTorch's derivative, ``sigmoid(x) - target``, however small it is.

    That of its decomposition is ``1 - target - sigmoid(-x)``: 0 or a rounding error where negatives are
    recognised with confidence, which Adam makes steps of.
    """
    positive = target if pos_weight is None else target * pos_weight
    every = 1 if pos_weight is None else positive + 1 - target
    lost = -every * torch.nn.functional.logsigmoid(-x) - positive * x
    return _reduced(lost if weight is None else lost * weight, reduction)


def _reduced(lost: torch.Tensor, reduction: int) -> torch.Tensor:
    if reduction == _MEAN:
        return lost.mean()
    return lost.sum() if reduction == _SUM else lost


def _renorm(x: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    """Slices that are too long are shortened; of others nothing is differentiated, as of a NaN."""
    axes = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    is_long = torch.linalg.vector_norm(x.detach(), p, axes, keepdim=True) > maxnorm
    length = torch.linalg.vector_norm(torch.where(is_long, x, 1.0), p, axes, keepdim=True)
    return x * torch.where(is_long, maxnorm / (length + _RENORM_EPSILON), 1.0)


_RENORM_EPSILON = 1e-7
"""What PyTorch adds to a norm that it divides by."""


def _linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None,
    class_weight: torch.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    *_chunks: object,
) -> torch.Tensor:
    """The whole product at once: what a plan recomputes is chosen here by its budget."""
    scores = torch.ops.aten.linear(x, weight, bias)
    return torch.nn.functional.cross_entropy(
        scores,
        target,
        None if class_weight is None else class_weight.detach(),  # as PyTorch's backward pass
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def _linear_cross_entropy_reduced(*given: Any) -> tuple[torch.Tensor, ...]:
    """With gradients of input, weight and bias, which only PyTorch's backward pass reads."""
    x, weight = given[0], given[1]
    wanted = zip((x.shape, weight.shape, weight.shape[:1]), given[-3:], strict=True)
    unread = [x.new_zeros(shape if is_made else [0] * len(shape)) for shape, is_made in wanted]
    return (_linear_cross_entropy(*given), *unread)


def _linear_cross_entropy_of_each(*given: Any) -> torch.Tensor:
    """The losses as they are."""
    return _linear_cross_entropy(*given[:5], "none", given[5], 0.0)


DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.binary_cross_entropy_with_logits.default: _binary_cross_entropy_with_logits,
    torch.ops.aten.multilabel_margin_loss.default: _multilabel_margin_loss,
    torch.ops.aten.renorm.default: _renorm,
    torch.ops.aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss_forward,
}

_REGISTERED_BY_USE: Mapping[str, Callable[..., Any]] = {
    "_linear_cross_entropy_batch_chunked": _linear_cross_entropy_reduced,
    "_linear_cross_entropy_batch_chunked_no_reduction": _linear_cross_entropy_of_each,
}
"""Operators of the namespace torch_nn, which PyTorch registers with the module that calls them."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """All of them whose operators PyTorch has registered by now."""
    packets = ((getattr(torch.ops.torch_nn, name, None), name) for name in _REGISTERED_BY_USE)
    late = {one.default: _REGISTERED_BY_USE[name] for one, name in packets if one is not None}
    return {**DECOMPOSITIONS, **late}
