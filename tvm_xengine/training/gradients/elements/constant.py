"""Hints, and ops through which no gradient flows: of derivative zero, or with whole numbers as result."""

from __future__ import annotations

from tvm_xengine.kernels.te.pointwise.table import POINTWISE
from tvm_xengine.relax_ir.hints import HINTS
from tvm_xengine.relax_ir.integer_ops import INTEGER_OPS
from tvm_xengine.relax_ir.own_ops import PREFIX, RUNNING_EXTREME
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.rule import Linearized, Rule, Site

_OF_RELAX = (
    *("arange", "argmax", "argmin", "argsort", "bitwise_and", "bitwise_not", "bitwise_or"),
    *("bitwise_xor", "bucketize", "ceil", "equal", "eye", "eye_like", "floor"),
    *("floor_divide", "full", "full_like", "grad.no_grad", "greater", "greater_equal"),
    *("hamming_window", "isfinite", "isinf", "isnan", "left_shift", "less", "less_equal"),
    *("logical_and", "logical_not", "logical_or", "logical_xor"),
    *("multinomial_from_uniform", "nonzero", "not_equal", "one_hot", "ones", "ones_like"),
    *("right_shift", "round", "shape_of", "shape_to_tensor", "sign", "size", "trunc"),
    *("zeros", "zeros_like"),
)
WITHOUT_GRADIENT = frozenset(
    {
        *(f"relax.{name}" for name in _OF_RELAX),
        RUNNING_EXTREME,
        *INTEGER_OPS,
        *(PREFIX + name for name, function in POINTWISE.items() if not any(function.derivatives)),
    }
)


def _stop(_emitter: Emitter, site: Site) -> Linearized:
    """The tensor itself, but no gradient."""
    return Linearized(site.operands, lambda _gradients: (None,) * len(site.operands))


def _hint(emitter: Emitter, site: Site) -> Linearized:
    """An identity, which passes gradients through."""
    return Linearized(site.emit(emitter), lambda gradients: gradients)


RULES: dict[str, Rule] = {"relax.grad.no_grad": _stop, **dict.fromkeys(HINTS, _hint)}
