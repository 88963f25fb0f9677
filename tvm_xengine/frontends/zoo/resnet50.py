"""ResNet-50 (He et al. 2016), with the stride in the 3x3 convolutions (ResNet v1.5)."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers
from tvm_xengine.relax_ir.types import static_shape

_BLOCKS = (3, 4, 6, 3)
_EXPANSION = 4
"""Table 1 of the paper: blocks of each group, and output channels per inner channel of a block."""


def resnet50(layers: Layers, image: relax.Expr, num_classes: int) -> relax.Expr:
    """Four groups of bottleneck blocks; 25,557,032 parameters with 1,000 classes."""
    x = layers.conv("conv1", image, 64, 7, stride=2, padding=3, bias=False)
    x = layers.relu("relu1", layers.batch_norm("bn1", x))
    x = layers.max_pool("pool1", x, 3, stride=2, padding=1)
    for group, num_blocks in enumerate(_BLOCKS):
        for block in range(num_blocks):
            stride = 2 if group > 0 and block == 0 else 1
            x = _bottleneck(layers, f"layer{group + 1}_{block}", x, 64 * 2**group, stride)
    return layers.linear("fc", layers.global_avg_pool("pool", x), num_classes)


def _bottleneck(layers: Layers, name: str, x: relax.Expr, width: int, stride: int) -> relax.Expr:
    """relu(bn(conv1x1(relu(bn(conv3x3(relu(bn(conv1x1(x)))))))) + shortcut(x))."""
    channels = _EXPANSION * width
    y = layers.conv(f"{name}_conv1", x, width, 1, bias=False)
    y = layers.relu(f"{name}_relu1", layers.batch_norm(f"{name}_bn1", y))
    y = layers.conv(f"{name}_conv2", y, width, 3, stride=stride, padding=1, bias=False)
    y = layers.relu(f"{name}_relu2", layers.batch_norm(f"{name}_bn2", y))
    y = layers.conv(f"{name}_conv3", y, channels, 1, bias=False)
    y = layers.batch_norm(f"{name}_bn3", y)
    if stride != 1 or static_shape(x.ty)[1] != channels:
        x = layers.conv(f"{name}_shortcut_conv", x, channels, 1, stride=stride, bias=False)
        x = layers.batch_norm(f"{name}_shortcut_bn", x)
    return layers.relu(f"{name}_relu3", layers.add(f"{name}_add", y, x))
