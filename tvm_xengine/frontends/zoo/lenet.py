"""LeNet-5 (LeCun et al. 1998) with ReLU and max pooling."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers


def lenet(layers: Layers, image: relax.Expr, num_classes: int) -> relax.Expr:
    """Two convolutions, three fully connected layers; about 61,000 parameters at 28 x 28."""
    x = layers.relu("relu1", layers.conv("conv1", image, 6, 5, padding=2))
    x = layers.max_pool("pool1", x, 2)
    x = layers.relu("relu2", layers.conv("conv2", x, 16, 5))
    x = layers.max_pool("pool2", x, 2)
    x = layers.flatten("flatten", x)
    x = layers.relu("relu3", layers.linear("fc1", x, 120))
    x = layers.relu("relu4", layers.linear("fc2", x, 84))
    return layers.linear("fc3", x, num_classes)
