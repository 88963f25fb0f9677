"""The table of all gradient rules."""

from __future__ import annotations

from tvm_xengine.training.gradients import (
    convolution,
    elementwise,
    linear,
    normalisation,
    pooling,
    reduction,
    shape,
)
from tvm_xengine.training.rule import Rule

RULES: dict[str, Rule] = {
    **convolution.RULES,
    **elementwise.RULES,
    **linear.RULES,
    **normalisation.RULES,
    **pooling.RULES,
    **reduction.RULES,
    **shape.RULES,
}

WITHOUT_GRADIENT = elementwise.WITHOUT_GRADIENT
