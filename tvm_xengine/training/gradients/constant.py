"""Ops through which no gradient flows: their derivative is zero, or their result whole numbers."""

from __future__ import annotations

from tvm_xengine.kernels.te.pointwise.table import POINTWISE
from tvm_xengine.relax_ir.own_ops import PREFIX, RUNNING_EXTREME
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.rule import Linearized, Rule, Site

WITHOUT_GRADIENT = frozenset(
    {
        "relax.arange",
        "relax.argmax",
        "relax.argmin",
        "relax.argsort",
        "relax.bitwise_and",
        "relax.bitwise_not",
        "relax.bitwise_or",
        "relax.bitwise_xor",
        "relax.bucketize",
        "relax.ceil",
        "relax.equal",
        "relax.eye",
        "relax.eye_like",
        "relax.floor",
        "relax.floor_divide",
        "relax.full",
        "relax.full_like",
        "relax.grad.no_grad",
        "relax.greater",
        "relax.greater_equal",
        "relax.hamming_window",
        "relax.isfinite",
        "relax.isinf",
        "relax.isnan",
        "relax.left_shift",
        "relax.less",
        "relax.less_equal",
        "relax.logical_and",
        "relax.logical_not",
        "relax.logical_or",
        "relax.logical_xor",
        "relax.multinomial_from_uniform",
        "relax.nonzero",
        "relax.not_equal",
        "relax.one_hot",
        "relax.ones",
        "relax.ones_like",
        "relax.right_shift",
        "relax.round",
        "relax.shape_of",
        "relax.shape_to_tensor",
        "relax.sign",
        "relax.size",
        "relax.trunc",
        "relax.zeros",
        "relax.zeros_like",
        RUNNING_EXTREME,
        *(PREFIX + name for name, function in POINTWISE.items() if not any(function.derivatives)),
    }
)


def _stop(_emitter: Emitter, site: Site) -> Linearized:
    """The tensor itself, but no gradient."""
    return Linearized(site.operands, lambda _gradients: (None,) * len(site.operands))


RULES: dict[str, Rule] = {"relax.grad.no_grad": _stop}
