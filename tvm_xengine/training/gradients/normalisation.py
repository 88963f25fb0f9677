"""Gradients of normalisations."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.training.kernels.normalisation import (
    batch_norm_backward,
    batch_norm_forward,
    batch_norm_inference,
    batch_norm_inference_backward,
    batch_norm_statistics,
)
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site

BATCH_NORM = "relax.nn.batch_norm"
BATCH_NORM_RELU = "tvm_xengine.batch_norm_relu"


def _batch_norm(emitter: Emitter, site: Site) -> Linearized:
    if int(site.attrs.axis) != 1:
        raise UnsupportedModelError(
            f"{site.name}: batch norm over axis {site.attrs.axis}, only axis 1 is supported"
        )
    return _with_batch(emitter, site) if bool(site.attrs.training) else _frozen(emitter, site)


def _with_batch(emitter: Emitter, site: Site) -> Linearized:
    """Normalise by the statistics of the batch, and fold them into the running ones."""
    data, gamma, beta, running_mean, running_var = site.operands
    relu = site.source.op == BATCH_NORM_RELU
    epsilon = float(site.attrs.epsilon)
    output, mean, inv_std = emitter.call_many(
        batch_norm_forward,
        [data, gamma, beta],
        f"{site.name}_forward",
        (site.name, f"{site.name}_mean", f"{site.name}_inv_std"),
        epsilon=epsilon,
        relu=relu,
    )
    new_mean, new_var = emitter.call_many(
        batch_norm_statistics,
        [running_mean, running_var, mean, inv_std],
        f"{site.name}_statistics",
        (f"{site.name}_new_mean", f"{site.name}_new_var"),
        momentum=float(site.attrs.momentum),
        epsilon=epsilon,
        count=prod(shape_of(data)) // shape_of(mean)[0],
    )

    def pullback(gradients: Gradients) -> Gradients:
        made = emitter.call_many(
            batch_norm_backward,
            [_of_output(gradients), data, gamma, beta, mean, inv_std],
            f"{site.name}_backward",
            _gradient_names(site),
            relu=relu,
        )
        return (*made, None, None)

    updates = ((running_mean, new_mean), (running_var, new_var))
    return Linearized((output, new_mean, new_var), pullback, updates)


def emit_frozen_batch_norm(emitter: Emitter, site: Site) -> relax.Expr:
    """Normalise by the running statistics, which stay."""
    return emitter.call(
        batch_norm_inference,
        site.operands,
        site.name,
        epsilon=float(site.attrs.epsilon),
        relu=site.source.op == BATCH_NORM_RELU,
    )


def _frozen(emitter: Emitter, site: Site) -> Linearized:
    running_mean, running_var = site.operands[3:]
    output = emit_frozen_batch_norm(emitter, site)

    def pullback(gradients: Gradients) -> Gradients:
        made = emitter.call_many(
            batch_norm_inference_backward,
            [_of_output(gradients), *site.operands],
            f"{site.name}_backward",
            _gradient_names(site),
            epsilon=float(site.attrs.epsilon),
            relu=site.source.op == BATCH_NORM_RELU,
        )
        return (*made, None, None)

    return Linearized((output, running_mean, running_var), pullback)


def _gradient_names(site: Site) -> tuple[str, str, str]:
    return f"{site.name}_data_grad", site.grad_name(1), site.grad_name(2)


def _of_output(gradients: Gradients) -> relax.Expr:
    if gradients[0] is None or any(gradient is not None for gradient in gradients[1:]):
        raise UnsupportedModelError("the loss must not depend on the running statistics")
    return gradients[0]


def merge_batch_norm_relu(ops: ForwardOps) -> ForwardOps:
    """One op where a ReLU is the only reader of a batch norm, as vendors ship it."""
    readers = ops.consumers()
    makers = {op.results[0]: op for op in ops.ops if op.op == BATCH_NORM}
    merged: dict[relax.Var, ForwardOp] = {}
    for op in ops.ops:
        norm = makers.get(op.operands[0]) if op.op == "relax.nn.relu" else None
        if norm is not None and readers[norm.results[0]] == 1:
            merged[norm.results[0]] = replace(
                norm, op=BATCH_NORM_RELU, results=(op.results[0], *norm.results[1:])
            )
    relus = {norm.results[0] for norm in merged.values()}
    kept = [
        merged.get(op.results[0], op)
        for op in ops.ops
        if not (op.op == "relax.nn.relu" and op.results[0] in relus)
    ]
    return replace(ops, ops=tuple(kept))


def running_statistics(source: ForwardOps) -> set[relax.Var]:
    """The parameters that batch norms keep their running means and variances in."""
    return {
        statistic
        for op in source.ops
        if op.op in (BATCH_NORM, BATCH_NORM_RELU)
        for statistic in op.operands[3:5]
        if isinstance(statistic, relax.Var)
    }


RULES: dict[str, Rule] = {BATCH_NORM: _batch_norm, BATCH_NORM_RELU: _batch_norm}
