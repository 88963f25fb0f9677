"""Leaving out results without readers."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te


def only(wanted: tuple[bool, ...], tensors: Sequence[te.Tensor]) -> list[te.Tensor]:
    """The tensors that are wanted; what only the others need is not computed."""
    return [tensor for tensor, needed in zip(tensors, wanted, strict=True) if needed]
