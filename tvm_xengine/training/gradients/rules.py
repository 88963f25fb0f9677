"""The table of all gradient rules.

Another package adds the rule of an operator by an entry point with the operator's name::

    [project.entry-points."tvm_xengine.gradients"]
    "my_package.my_operator" = "my_package.gradients:my_rule"
"""

from __future__ import annotations

from tvm_xengine.extensions.extended import Extended, extended
from tvm_xengine.training.gradients import (
    constant,
    convolution,
    einsum,
    elementwise,
    hints,
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
    **hints.RULES,
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


def gradient_rules() -> Extended[Rule]:
    """The rules of this package and of installed extensions."""
    return extended("tvm_xengine.gradients", RULES)
