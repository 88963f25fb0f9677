"""A multi-layer perceptron."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers


def mlp(layers: Layers, image: relax.Expr, num_classes: int) -> relax.Expr:
    """Two hidden layers of 128."""
    x = layers.flatten("flatten", image)
    x = layers.relu("relu1", layers.linear("fc1", x, 128))
    x = layers.relu("relu2", layers.linear("fc2", x, 128))
    return layers.linear("fc3", x, num_classes)
