"""Networks that need no file: built layer by layer, initialised at random."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.ds_cnn import ds_cnn
from tvm_xengine.frontends.zoo.gpt_nano import gpt_nano
from tvm_xengine.frontends.zoo.initial_weights import he_normal, small_normal
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.frontends.zoo.lenet import lenet
from tvm_xengine.frontends.zoo.mlp import mlp
from tvm_xengine.frontends.zoo.mobilenetv2 import mobilenetv2
from tvm_xengine.frontends.zoo.resnet8 import resnet8
from tvm_xengine.frontends.zoo.resnet18 import resnet18
from tvm_xengine.frontends.zoo.resnet50 import resnet50
from tvm_xengine.frontends.zoo.spec import NetworkSpec
from tvm_xengine.frontends.zoo.unet import unet
from tvm_xengine.frontends.zoo.vgg16 import vgg16

NETWORKS: dict[str, NetworkSpec] = {
    "lenet": NetworkSpec(lenet, (1, 28, 28)),
    "mlp": NetworkSpec(mlp, (1, 8, 8)),
    "resnet8": NetworkSpec(resnet8, (3, 32, 32)),
    "resnet18": NetworkSpec(resnet18, (3, 32, 32)),
    "resnet50": NetworkSpec(resnet50, (3, 64, 64), weights=he_normal),
    "vgg16": NetworkSpec(vgg16, (3, 32, 32), weights=he_normal),
    "mobilenetv2": NetworkSpec(mobilenetv2, (3, 64, 64), weights=he_normal),
    "ds_cnn": NetworkSpec(ds_cnn, (1, 49, 10), num_classes=12),
    "unet": NetworkSpec(unet, (1, 32, 32), num_classes=2, weights=he_normal),
    "gpt_nano": NetworkSpec(gpt_nano, (63,), num_classes=17, weights=small_normal),
}


def build(
    name: str,
    *,
    batch_size: int = 8,
    size: int | None = None,
    num_classes: int | None = None,
    seed: int = 0,
) -> ForwardModel:
    """The network of that name; equal arguments give equal parameters.

    Parameters
    ----------
    name
        A key of `NETWORKS`; hyphens count as underscores.
    size
        Height and width of the images, or length of the sequences; None takes the usual one of
        the network.
    num_classes
        Number of classes, or of different tokens; None takes the usual one of the network.

    Raises
    ------
    UnsupportedModelError
        When the zoo has no such network, or the network cannot have that size.
    """
    spec = spec_called(name)
    classes = spec.num_classes if num_classes is None else num_classes
    if classes < 1 or batch_size < 1:
        raise UnsupportedModelError(
            f"{name}: expected at least one class and one example, got {classes} and {batch_size}"
        )
    shape = (batch_size, *spec.shape_of_size(size))

    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", shape, "int64" if spec.reads_tokens else "float32")
        return spec.body(layers, x, classes)

    try:
        return build_network(name, seed, body, spec.weights)
    except (ValueError, RuntimeError, TypeError) as error:
        raise UnsupportedModelError(
            f"{name}: size {size} leaves nothing for its last layers; its usual size is"
            f" {spec.input_shape[-1]}"
        ) from error


def spec_called(name: str) -> NetworkSpec:
    """What the zoo knows about the network of that name."""
    key = name.replace("-", "_")
    if key not in NETWORKS:
        raise UnsupportedModelError(f"unknown network {name!r}, the zoo has {', '.join(NETWORKS)}")
    return NETWORKS[key]
