"""The table of all gradient rules: the tables of the modules in this folder.

Another package adds the rule of an operator by an entry point with the operator's name::

    [project.entry-points."tvm_xengine.gradients"]
    "my_package.my_operator" = "my_package.gradients:my_rule"
"""

from __future__ import annotations

from tvm_xengine.extensions.extended import Extended, extended, joined
from tvm_xengine.training.gradients.elements import constant
from tvm_xengine.training.rule import Rule

RULES: dict[str, Rule] = joined("tvm_xengine.training.gradients", "RULES")
WITHOUT_GRADIENT = constant.WITHOUT_GRADIENT


def gradient_rules() -> Extended[Rule]:
    """The rules of this package and of installed extensions."""
    return extended("tvm_xengine.gradients", RULES)
