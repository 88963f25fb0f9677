"""Simplification of a forward function before it is differentiated."""

from __future__ import annotations

from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.training.composites import expand_composites
from tvm_xengine.training.gradients.linear import merge_transposed_matmul
from tvm_xengine.training.gradients.normalisation import merge_batch_norm_relu


def simplified(source: ForwardOps, *, residuals_apart: bool = False) -> ForwardOps:
    """Composite ops decomposed, and patterns with a kernel of their own combined.

    `residuals_apart` is that of :class:`tvm_xengine.training.recipe.Recipe`.
    """
    source = merge_transposed_matmul(expand_composites(source))
    return merge_batch_norm_relu(source, residuals_apart=residuals_apart)
