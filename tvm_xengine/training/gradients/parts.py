"""The gradient of a tensor from those of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tvm import relax

from tvm_xengine.kernels.te.indexing.movement import parts_backward
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.rule import PartGradient


def assembled(
    emitter: Emitter, parts: Iterable[PartGradient], shape: tuple[int, ...]
) -> list[relax.Expr]:
    """Tensors whose sum is the gradient; one for parts of an axis that do not overlap.

    A network unrolled over time reads a tensor once for each step. As many sums of tensors that are
    zero but for one step would be quadratic work.
    """
    return [_joined(emitter, layer, shape) for layer in _without_overlap(parts)]


def _without_overlap(parts: Iterable[PartGradient]) -> list[list[PartGradient]]:
    """In as few layers as `parts` allow in the order of where they begin."""
    layers: list[list[PartGradient]] = []
    for part in sorted(parts, key=lambda part: (part.axis, part.begin)):
        fits = (
            layer for layer in layers if layer[-1].axis == part.axis and layer[-1].end <= part.begin
        )
        layer = next(fits, None)
        if layer is None:
            layers.append([part])
        else:
            layer.append(part)
    return layers


def _joined(emitter: Emitter, parts: Sequence[PartGradient], shape: tuple[int, ...]) -> relax.Expr:
    return emitter.call(
        parts_backward,
        [part.gradient for part in parts],
        parts[0].name,
        shape=shape,
        axis=parts[0].axis,
        begins=tuple(part.begin for part in parts),
    )
