"""Decompositions for operators of which PyTorch's own compute something else than the operator does."""

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
    margins = (1 - x.gather(1, places).unsqueeze(2) + x.unsqueeze(1)).clamp(min=0)
    pairs = counts.unsqueeze(2) & ~is_label.unsqueeze(1)
    lost = torch.where(pairs, margins, torch.zeros_like(margins)).sum((1, 2)) / classes
    if scores.dim() < 2:
        lost = lost[0]
    if reduction == _MEAN:
        return lost.mean()
    return lost.sum() if reduction == _SUM else lost


def _multilabel_margin_loss_forward(
    scores: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN
) -> tuple[torch.Tensor, torch.Tensor]:
    """With the mask of labels, which only PyTorch's backward pass reads."""
    return _multilabel_margin_loss(scores, target, reduction), torch.zeros_like(scores)


DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.multilabel_margin_loss.default: _multilabel_margin_loss,
    torch.ops.aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss_forward,
}
