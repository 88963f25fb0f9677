"""The table of all gradient rules."""

from __future__ import annotations

from tvm_xengine.training.gradients import (
    constant,
    convolution,
    einsum,
    elementwise,
    indexing,
    linear,
    nll_loss,
    normalisation,
    order,
    pooling,
    randomness,
    reduction,
    resize,
    row_normalisation,
    scan,
    shape,
)
from tvm_xengine.training.rule import Rule

RULES: dict[str, Rule] = {
    **constant.RULES,
    **convolution.RULES,
    **einsum.RULES,
    **elementwise.RULES,
    **indexing.RULES,
    **linear.RULES,
    **nll_loss.RULES,
    **normalisation.RULES,
    **order.RULES,
    **pooling.RULES,
    **randomness.RULES,
    **reduction.RULES,
    **resize.RULES,
    **row_normalisation.RULES,
    **scan.RULES,
    **shape.RULES,
}

WITHOUT_GRADIENT = constant.WITHOUT_GRADIENT
