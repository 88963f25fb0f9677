"""Gradients of normalisations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.norms.batch_norm import (
    batch_norm_add_relu_backward,
    batch_norm_add_relu_forward,
    batch_norm_backward,
    batch_norm_forward,
    batch_norm_inference,
    batch_norm_inference_backward,
    batch_norm_statistics,
)
from tvm_xengine.relax_ir.batch_norms import (
    BATCH_NORM,
    BATCH_NORM_ADD_RELU,
    BATCH_NORM_RELU,
    BATCH_NORMS,
)
from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.training.emitter import Emitter, Kernel, Option, shape_of
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


def _batch_norm(emitter: Emitter, site: Site) -> Linearized:
    if int(site.attrs.axis) != 1:
        raise UnsupportedModelError(
            f"{site.name}: batch norm over axis {site.attrs.axis}, only axis 1 is supported"
        )
    if not bool(site.attrs.training):
        return _frozen(emitter, site)
    residual = site.source.op == BATCH_NORM_ADD_RELU
    return _with_batch_and_residual(emitter, site) if residual else _with_batch(emitter, site)


def _with_batch(emitter: Emitter, site: Site) -> Linearized:
    """Normalise by the statistics of the batch, and fold them into the running ones."""
    data, gamma, beta, *_ = site.operands
    relu = site.source.op == BATCH_NORM_RELU
    output, mean, inv_std = emitter.call_many(
        batch_norm_forward,
        [data, gamma, beta],
        f"{site.name}_forward",
        (site.name, f"{site.name}_mean", f"{site.name}_inv_std"),
        epsilon=float(site.attrs.epsilon),
        relu=relu,
    )
    updates = _statistics(emitter, site, mean, inv_std)

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [_of_output(gradients), data, gamma, beta, mean, inv_std]
        return pulled_back(emitter, site, batch_norm_backward, tensors, relu=relu)

    return Linearized((output, *(new for _, new in updates)), pullback, updates)


def _with_batch_and_residual(emitter: Emitter, site: Site) -> Linearized:
    """The same at the end of a residual block."""
    data, gamma, beta, _, _, residual = site.operands
    output, mean, inv_std = emitter.call_many(
        batch_norm_add_relu_forward,
        [data, gamma, beta, residual],
        f"{site.name}_forward",
        (site.name, f"{site.name}_mean", f"{site.name}_inv_std"),
        epsilon=float(site.attrs.epsilon),
    )
    updates = _statistics(emitter, site, mean, inv_std)

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [_of_output(gradients), output, data, gamma, mean, inv_std]
        return pulled_back(
            emitter, site, batch_norm_add_relu_backward, tensors, positions=(0, 1, 2, 5)
        )

    return Linearized((output, *(new for _, new in updates)), pullback, updates)


def _statistics(
    emitter: Emitter, site: Site, mean: relax.Expr, inv_std: relax.Expr
) -> tuple[tuple[relax.Expr, relax.Expr], ...]:
    """Pairs (old, new) of the running mean and variance."""
    running = site.operands[3:5]
    new = emitter.call_many(
        batch_norm_statistics,
        [*running, mean, inv_std],
        f"{site.name}_statistics",
        (f"{site.name}_new_mean", f"{site.name}_new_var"),
        momentum=float(site.attrs.momentum),
        epsilon=float(site.attrs.epsilon),
        count=prod(shape_of(site.operands[0])) // shape_of(mean)[0],
    )
    return tuple(zip(running, new, strict=True))


def emit_frozen_batch_norm(emitter: Emitter, site: Site) -> relax.Expr:
    """Normalise by the running statistics, which stay."""
    output = emitter.call(
        batch_norm_inference,
        site.operands[:5],
        site.name,
        epsilon=float(site.attrs.epsilon),
        relu=site.source.op == BATCH_NORM_RELU,
    )
    if site.source.op != BATCH_NORM_ADD_RELU:
        return output
    summed = emitter.bind(relax.op.add(output, site.operands[5]), f"{site.name}_sum")
    return emitter.bind(relax.op.nn.relu(summed), f"{site.name}_relu")


def _frozen(emitter: Emitter, site: Site) -> Linearized:
    running_mean, running_var = site.operands[3:]
    output = emit_frozen_batch_norm(emitter, site)

    def pullback(gradients: Gradients) -> Gradients:
        return pulled_back(
            emitter,
            site,
            batch_norm_inference_backward,
            [_of_output(gradients), *site.operands],
            epsilon=float(site.attrs.epsilon),
            relu=site.source.op == BATCH_NORM_RELU,
        )

    return Linearized((output, running_mean, running_var), pullback)


def pulled_back(
    emitter: Emitter,
    site: Site,
    kernel: Kernel,
    tensors: Sequence[relax.Expr],
    *,
    positions: tuple[int, ...] = (0, 1, 2),
    **options: Option,
) -> Gradients:
    """The gradients of a norm that somebody needs, made by one kernel.

    Parameters
    ----------
    positions
        The operands whose gradients the kernel makes.
    """
    wanted = tuple(site.needs[position] for position in positions)
    needed = [position for position in positions if site.needs[position]]
    names = [site.grad_name(position) if position in (1, 2) else "" for position in needed]
    made = emitter.call_many(
        kernel,
        tensors,
        f"{site.name}_backward",
        [
            name or f"{site.name}_{'residual' if position else 'data'}_grad"
            for name, position in zip(names, needed, strict=True)
        ],
        wanted=wanted,
        **options,
    )
    found = dict(zip(needed, made, strict=True))
    return tuple(found.get(position) for position in range(len(site.operands)))


def _of_output(gradients: Gradients) -> relax.Expr:
    if gradients[0] is None or any(gradient is not None for gradient in gradients[1:]):
        raise UnsupportedModelError("the loss must not depend on the running statistics")
    return gradients[0]


def merge_batch_norm_relu(ops: ForwardOps, *, residuals_apart: bool = False) -> ForwardOps:
    """One op where a ReLU is the only reader of a batch norm, or of its sum with a tensor.

    ``relu(bn(x))`` and, in training mode, ``relu(bn(x) + z)`` are single kernels of the vendors.
    The latter stay apart on demand.
    """
    readers = ops.consumers()
    makers = {op.results[0]: op for op in ops.ops}
    merged: dict[relax.Var, ForwardOp] = {}
    gone: set[relax.Var] = set()
    for op in ops.ops:
        if op.op != "relax.nn.relu":
            continue
        norm, residual = _norm_before(op.operands[0], makers, readers, gone)
        if norm is None or (residuals_apart and residual is not None):
            continue
        results = (op.results[0], *norm.results[1:])
        if residual is None:
            kind, operands = BATCH_NORM_RELU, norm.operands
        else:
            kind, operands = BATCH_NORM_ADD_RELU, (*norm.operands, residual)
            gone.add(op.operands[0])
        gone.add(norm.results[0])
        merged[op.results[0]] = replace(norm, op=kind, operands=operands, results=results)
    kept = [merged.get(op.results[0], op) for op in ops.ops if op.results[0] not in gone]
    return replace(ops, ops=tuple(kept))


def _norm_before(
    value: relax.Expr,
    makers: Mapping[relax.Var, ForwardOp],
    readers: Mapping[relax.Var, int],
    gone: Collection[relax.Var],
) -> tuple[ForwardOp | None, relax.Expr | None]:
    """The batch norm whose only reader this is, and what is added to it."""

    def hidden(candidate: relax.Expr, op: str) -> ForwardOp | None:
        maker = makers.get(candidate) if isinstance(candidate, relax.Var) else None
        alone = maker is not None and maker.op == op and readers[candidate] == 1
        return maker if alone and candidate not in gone else None

    if (norm := hidden(value, BATCH_NORM)) is not None:
        return norm, None
    added = hidden(value, "relax.add")
    if added is None:
        return None, None
    for norm_side, residual in (added.operands, added.operands[::-1]):
        norm = hidden(norm_side, BATCH_NORM)
        same = shape_of(residual) == shape_of(norm_side)
        if norm is not None and same and bool(norm.call.attrs.training):
            return norm, residual
    return None, None


RULES: dict[str, Rule] = dict.fromkeys(BATCH_NORMS, _batch_norm)
