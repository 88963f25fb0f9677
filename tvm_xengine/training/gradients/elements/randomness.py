"""Ops that draw random numbers."""

from __future__ import annotations

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.randomness import dropout
from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site

DROPOUT = "relax.nn.dropout"


def draws_random_numbers(source: ForwardOps) -> bool:
    """Whether a step of this model needs a seed."""
    return any(op.op == DROPOUT and float(op.call.attrs.rate) > 0 for op in source.ops)


def _dropout(emitter: Emitter, site: Site) -> Linearized:
    rate = float(site.attrs.rate)
    if not 0 <= rate < 1:
        raise UnsupportedModelError(f"{site.name}: dropout rate {rate} is not in [0, 1)")
    (data,) = site.operands
    random = site.random
    if not rate or random is None:
        return Linearized((data, data), lambda gradients: (gradients[0],))
    key = [random.seed, random.step]
    options = {"rate": rate, "op": random.op}
    output = emitter.call(dropout, [data, *key], site.name, **options)

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [gradients[0], *key]
        return (emitter.call(dropout, tensors, site.grad_name(0), **options),)

    return Linearized((output, data), pullback)


RULES: dict[str, Rule] = {DROPOUT: _dropout}
