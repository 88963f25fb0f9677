"""Designed networks beyond the zoo's, in many widths, for cost models to learn from.

Each has the blocks of a published design, at a size that trains on a small machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax

from tvm_xengine.cost_models.corpus.designs.attention import (
    bert,
    conformer,
    llama,
    mixer,
    swin,
    vit,
)
from tvm_xengine.cost_models.corpus.designs.convolutional import (
    alexnet,
    convolutional_autoencoder,
    cspdarknet,
    dcgan,
    densenet,
    inception,
    regnet,
    repvgg,
    resnext,
    segnet,
    squeezenet,
    srresnet,
    wide_resnet,
)
from tvm_xengine.cost_models.corpus.designs.dense import autoencoder, pointnet, recommender
from tvm_xengine.cost_models.corpus.designs.design import Design
from tvm_xengine.cost_models.corpus.designs.mobile import (
    convnext,
    efficientnet,
    ghostnet,
    lcnet,
    mnasnet,
    mobilenetv1,
    poolformer,
    shufflenet,
)
from tvm_xengine.cost_models.corpus.designs.sequential import gru, lstm, wavenet
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import build_network

DESIGNS: Mapping[str, Callable[[Design], relax.Expr]] = {
    design.__name__: design
    for design in (
        *(mobilenetv1, efficientnet, resnext, wide_resnet, densenet, squeezenet, inception),
        *(shufflenet, alexnet, segnet, convolutional_autoencoder, convnext, mixer, vit, bert),
        *(autoencoder, recommender, mnasnet, lcnet, ghostnet, poolformer, regnet, repvgg),
        *(cspdarknet, dcgan, srresnet, llama, swin, conformer, lstm, gru, wavenet, pointnet),
    )
}


def build_design(name: str, batch_size: int, num_classes: int, seed: int) -> ForwardModel:
    """The design of that name, in a width and a size that the seed chooses.

    Raises
    ------
    UnsupportedModelError
        When there is no such design.
    """
    if name not in DESIGNS:
        raise UnsupportedModelError(f"unknown design {name!r}, there are {', '.join(DESIGNS)}")
    return build_network(
        name, seed, lambda layers: DESIGNS[name](Design(layers, batch_size, num_classes, seed))
    )
