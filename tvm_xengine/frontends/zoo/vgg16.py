"""VGG-16 (Simonyan and Zisserman 2015)."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers

_GROUPS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
_HIDDEN = 4096
"""Configuration D in table 1 of the paper: channels and number of convolutions of each group."""


def vgg16(layers: Layers, image: relax.Expr, num_classes: int) -> relax.Expr:
    """Thirteen convolutions and three fully connected layers with dropout between.

    138,357,544 parameters at 224 x 224 with 1,000 classes. The first fully connected layer reads
    what the convolutions leave, so small images make a smaller network.
    """
    x = image
    for group, (channels, count) in enumerate(_GROUPS, start=1):
        for position in range(1, count + 1):
            x = layers.conv(f"conv{group}_{position}", x, channels, 3, padding=1)
            x = layers.relu(f"relu{group}_{position}", x)
        x = layers.max_pool(f"pool{group}", x, 2)
    x = layers.flatten("flatten", x)
    for position in (1, 2):
        x = layers.relu(f"fc{position}_relu", layers.linear(f"fc{position}", x, _HIDDEN))
        x = layers.dropout(f"dropout{position}", x, 0.5)
    return layers.linear("fc3", x, num_classes)
