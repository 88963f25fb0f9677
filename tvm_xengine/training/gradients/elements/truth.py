"""Kernels of negations, through which no gradient flows."""

from __future__ import annotations

from tvm_xengine.kernels.te.truth import logical_not, logical_xor, not_equal
from tvm_xengine.training.emitter import Emitter, Kernel
from tvm_xengine.training.rule import Linearized, Rule, Site


def _without_gradient(kernel: Kernel) -> Rule:
    def rule(emitter: Emitter, site: Site) -> Linearized:
        made = emitter.call(kernel, site.operands, site.name)
        return Linearized((made,), lambda _gradients: (None,) * len(site.operands))

    return rule


RULES: dict[str, Rule] = {
    "relax.logical_not": _without_gradient(logical_not),
    "relax.logical_xor": _without_gradient(logical_xor),
    "relax.not_equal": _without_gradient(not_equal),
}
