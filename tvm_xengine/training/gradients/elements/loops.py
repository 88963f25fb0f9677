"""Kernels of operators that loop until their values say so; PyTorch has no gradients of them either."""

from __future__ import annotations

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.loops import gcd, hurwitz_zeta, polynomial
from tvm_xengine.relax_ir.own_ops import POLYNOMIAL_OPS, PREFIX
from tvm_xengine.training.emitter import Emitter, Kernel, Option
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


def _without_gradient(name: str, kernel: Kernel, **options: Option) -> Rule:
    def rule(emitter: Emitter, site: Site) -> Linearized:
        def pullback(_gradients: Gradients) -> Gradients:
            raise UnsupportedModelError(
                f"{name} (in {site.name}): PyTorch has no gradient of it, and neither has this"
                " program; detach its operands"
            )

        made = emitter.call(kernel, site.operands, site.name, **options)
        return Linearized((made,), pullback)

    return rule


RULES: dict[str, Rule] = {
    PREFIX + "gcd": _without_gradient("gcd", gcd),
    PREFIX + "hurwitz_zeta": _without_gradient("special_zeta", hurwitz_zeta),
    **{
        PREFIX + name: _without_gradient(f"special_{name}", polynomial, family=name)
        for name in POLYNOMIAL_OPS
    },
}
