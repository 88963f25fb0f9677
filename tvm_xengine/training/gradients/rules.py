"""The table of all gradient rules."""

from __future__ import annotations

from tvm_xengine.training.gradients import (
    convolution,
    elementwise,
    indexing,
    linear,
    normalisation,
    pooling,
    randomness,
    reduction,
    resize,
    row_normalisation,
    shape,
)
from tvm_xengine.training.rule import Rule

RULES: dict[str, Rule] = {
    **convolution.RULES,
    **elementwise.RULES,
    **indexing.RULES,
    **linear.RULES,
    **normalisation.RULES,
    **pooling.RULES,
    **randomness.RULES,
    **reduction.RULES,
    **resize.RULES,
    **row_normalisation.RULES,
    **shape.RULES,
}

WITHOUT_GRADIENT = elementwise.WITHOUT_GRADIENT
