"""Networks that need no file: built layer by layer, initialised at random."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.frontends.zoo.lenet import lenet
from tvm_xengine.frontends.zoo.mlp import mlp
from tvm_xengine.frontends.zoo.resnet import resnet18
from tvm_xengine.frontends.zoo.spec import NetworkSpec

NETWORKS: dict[str, NetworkSpec] = {
    "lenet": NetworkSpec(lenet, channels=1, image_size=28),
    "mlp": NetworkSpec(mlp, channels=1, image_size=8),
    "resnet18": NetworkSpec(resnet18, channels=3, image_size=32),
}


def build(
    name: str,
    *,
    batch_size: int = 8,
    image_size: int | None = None,
    num_classes: int = 10,
    seed: int = 0,
) -> ForwardModel:
    """The network of that name; equal arguments give equal parameters.

    Parameters
    ----------
    image_size
        Height and width of the images; None takes the usual one of the network.
    """
    if name not in NETWORKS:
        raise UnsupportedModelError(f"unknown network {name!r}, the zoo has {', '.join(NETWORKS)}")
    spec = NETWORKS[name]
    size = spec.image_size if image_size is None else image_size

    def body(layers: Layers) -> relax.Expr:
        image = layers.input("x", (batch_size, spec.channels, size, size))
        return spec.body(layers, image, num_classes)

    return build_network(name, seed, body)
