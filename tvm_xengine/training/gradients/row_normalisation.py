"""Gradients of layer norm, RMS norm, group norm, instance norm and softmax."""

from __future__ import annotations

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.norms.batch_norm import batch_norm_backward, batch_norm_forward
from tvm_xengine.kernels.te.norms.row_norm import (
    group_norm_backward,
    group_norm_forward,
    layer_norm_backward,
    layer_norm_forward,
    log_softmax_backward,
    rms_norm_backward,
    rms_norm_forward,
    softmax_backward,
)
from tvm_xengine.training.emitter import Emitter, Kernel, Option, shape_of
from tvm_xengine.training.gradients.normalisation import pulled_back
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


def _layer_norm(emitter: Emitter, site: Site) -> Linearized:
    _check_trailing(site)
    return _normalised(emitter, site, layer_norm_forward, layer_norm_backward)


def _rms_norm(emitter: Emitter, site: Site) -> Linearized:
    _check_trailing(site)
    return _normalised(emitter, site, rms_norm_forward, rms_norm_backward, ("inv_rms",))


def _group_norm(emitter: Emitter, site: Site) -> Linearized:
    return _by_groups(emitter, site, int(site.attrs.num_groups))


def _instance_norm(emitter: Emitter, site: Site) -> Linearized:
    rank = len(site.shape)
    axes = sorted(int(axis) % rank for axis in site.attrs.axes)
    if axes == list(range(2, rank)) or (axes == [0, *range(2, rank)] and site.shape[0] == 1):
        return _by_groups(emitter, site, site.shape[1])
    if axes == [0, *range(2, rank)]:
        # A batch norm that keeps no running statistics, and whose way back reads all operands.
        kernels = batch_norm_forward, batch_norm_backward
        return _normalised(emitter, site, *kernels, reads=3, relu=False)
    raise UnsupportedModelError(f"{site.name}: instance norm over the axes {axes}")


def _by_groups(emitter: Emitter, site: Site, groups: int) -> Linearized:
    rank = len(site.shape)
    if int(site.attrs.channel_axis) % rank != 1:
        raise UnsupportedModelError(
            f"{site.name}: {site.source.op} with channels on axis {site.attrs.channel_axis}, "
            "only axis 1 is supported"
        )
    return _normalised(emitter, site, group_norm_forward, group_norm_backward, groups=groups)


def _softmax_rule(backward: Kernel) -> Rule:
    def rule(emitter: Emitter, site: Site) -> Linearized:
        (output,) = site.emit(emitter)
        axis = int(site.attrs.axis) % len(site.shape)

        def pullback(gradients: Gradients) -> Gradients:
            tensors = [gradients[0], output]
            return (emitter.call(backward, tensors, site.grad_name(0), axis=axis),)

        return Linearized((output,), pullback)

    return rule


def _normalised(
    emitter: Emitter,
    site: Site,
    forward: Kernel,
    backward: Kernel,
    saved: tuple[str, ...] = ("mean", "inv_std"),
    reads: int = 2,
    **options: Option,
) -> Linearized:
    """A norm whose way back reads its first operands and what the way there has `saved`."""
    output, *statistics = emitter.call_many(
        forward,
        site.operands,
        f"{site.name}_forward",
        (site.name, *(f"{site.name}_{one}" for one in saved)),
        epsilon=float(site.attrs.epsilon),
        **options,
    )

    def pullback(gradients: Gradients) -> Gradients:
        assert gradients[0] is not None
        tensors = [gradients[0], *site.operands[:reads], *statistics]
        positions = tuple(range(len(site.operands)))
        return pulled_back(emitter, site, backward, tensors, positions=positions, **options)

    return Linearized((output,), pullback)


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
