"""Gradients of layer norm, RMS norm, group norm, instance norm and softmax."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.norms.batch_norm import batch_norm_backward, batch_norm_forward
from tvm_xengine.kernels.te.norms.group_norm import (
    group_norm_backward,
    group_norm_forward,
)
from tvm_xengine.kernels.te.norms.row_norm import (
    layer_norm_backward,
    layer_norm_forward,
    log_softmax_backward,
    rms_norm_backward,
    rms_norm_forward,
    softmax_backward,
)
from tvm_xengine.training.emitter import Emitter, Kernel, shape_of
from tvm_xengine.training.gradients.normalisation import pulled_back
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


def _layer_norm(emitter: Emitter, site: Site) -> Linearized:
    _check_trailing(site)
    data, gamma, beta = site.operands
    output, mean, inv_std = _forward(
        emitter, site, layer_norm_forward, [data, gamma, beta], ("mean", "inv_std")
    )

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [gradients[0], data, gamma, mean, inv_std]
        return pulled_back(emitter, site, layer_norm_backward, tensors)

    return Linearized((output,), pullback)


def _rms_norm(emitter: Emitter, site: Site) -> Linearized:
    _check_trailing(site)
    data, weight = site.operands
    output, inv_rms = _forward(emitter, site, rms_norm_forward, [data, weight], ("inv_rms",))

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [gradients[0], data, weight, inv_rms]
        return pulled_back(emitter, site, rms_norm_backward, tensors, positions=(0, 1))

    return Linearized((output,), pullback)


def _group_norm(emitter: Emitter, site: Site) -> Linearized:
    return _by_groups(emitter, site, int(site.attrs.num_groups))


def _instance_norm(emitter: Emitter, site: Site) -> Linearized:
    rank = len(site.shape)
    axes = sorted(int(axis) % rank for axis in site.attrs.axes)
    if axes == list(range(2, rank)) or (axes == [0, *range(2, rank)] and site.shape[0] == 1):
        return _by_groups(emitter, site, site.shape[1])
    if axes == [0, *range(2, rank)]:
        return _without_statistics(emitter, site)
    raise UnsupportedModelError(f"{site.name}: instance norm over the axes {axes}")


def _by_groups(emitter: Emitter, site: Site, groups: int) -> Linearized:
    rank = len(site.shape)
    if int(site.attrs.channel_axis) % rank != 1:
        raise UnsupportedModelError(
            f"{site.name}: {site.source.op} with channels on axis {site.attrs.channel_axis}, "
            "only axis 1 is supported"
        )
    data, gamma, beta = site.operands
    epsilon = float(site.attrs.epsilon)
    output, mean, inv_std = emitter.call_many(
        group_norm_forward,
        [data, gamma, beta],
        f"{site.name}_forward",
        (site.name, f"{site.name}_mean", f"{site.name}_inv_std"),
        groups=groups,
        epsilon=epsilon,
    )

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [gradients[0], data, gamma, mean, inv_std]
        return pulled_back(emitter, site, group_norm_backward, tensors, groups=groups)

    return Linearized((output,), pullback)


def _without_statistics(emitter: Emitter, site: Site) -> Linearized:
    """A batch norm that keeps no running statistics."""
    data, gamma, beta = site.operands
    output, mean, inv_std = emitter.call_many(
        batch_norm_forward,
        [data, gamma, beta],
        f"{site.name}_forward",
        (site.name, f"{site.name}_mean", f"{site.name}_inv_std"),
        epsilon=float(site.attrs.epsilon),
        relu=False,
    )

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [gradients[0], data, gamma, beta, mean, inv_std]
        return pulled_back(emitter, site, batch_norm_backward, tensors, relu=False)

    return Linearized((output,), pullback)


def _softmax_rule(backward: Kernel) -> Rule:
    def rule(emitter: Emitter, site: Site) -> Linearized:
        (output,) = site.emit(emitter)
        axis = int(site.attrs.axis) % len(site.shape)

        def pullback(gradients: Gradients) -> Gradients:
            tensors = [gradients[0], output]
            return (emitter.call(backward, tensors, site.grad_name(0), axis=axis),)

        return Linearized((output,), pullback)

    return rule


def _forward(
    emitter: Emitter,
    site: Site,
    kernel: Kernel,
    inputs: Sequence[relax.Expr],
    saved: tuple[str, ...],
) -> tuple[relax.Var, ...]:
    return emitter.call_many(
        kernel,
        inputs,
        f"{site.name}_forward",
        (site.name, *(f"{site.name}_{one}" for one in saved)),
        epsilon=float(site.attrs.epsilon),
    )


def _check_trailing(site: Site) -> None:
    rank = len(site.shape)
    axes = [int(axis) % rank for axis in site.attrs.axes]
    if (
        axes != list(range(rank - len(axes), rank))
        or shape_of(site.operands[1]) != (site.shape[rank - len(axes) :])
    ):
        raise UnsupportedModelError(
            f"{site.name}: {site.source.op} over the axes {axes} of {site.shape}, "
            "only trailing axes are supported"
        )


RULES: dict[str, Rule] = {
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.rms_norm": _rms_norm,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.instance_norm": _instance_norm,
    "relax.nn.softmax": _softmax_rule(softmax_backward),
    "relax.nn.log_softmax": _softmax_rule(log_softmax_backward),
}
