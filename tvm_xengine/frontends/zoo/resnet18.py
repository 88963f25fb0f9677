"""ResNet-18 (He et al. 2016) in the form for small images: 3x3 stem, stride 1, no max pooling."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers
from tvm_xengine.relax_ir.types import static_shape


def resnet18(layers: Layers, image: relax.Expr, num_classes: int) -> relax.Expr:
    """Four groups of two basic blocks with 64, 128, 256 and 512 channels."""
    x = layers.conv("conv1", image, 64, 3, padding=1, bias=False)
    x = layers.relu("relu1", layers.batch_norm("bn1", x))
    for group, channels in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            stride = 2 if group > 1 and block == 0 else 1
            x = _basic_block(layers, f"layer{group}_{block}", x, channels, stride)
    x = layers.global_avg_pool("pool", x)
    return layers.linear("fc", x, num_classes)


def _basic_block(
    layers: Layers, name: str, x: relax.Expr, channels: int, stride: int
) -> relax.Expr:
    """relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))."""
    y = layers.conv(f"{name}_conv1", x, channels, 3, stride=stride, padding=1, bias=False)
    y = layers.relu(f"{name}_relu1", layers.batch_norm(f"{name}_bn1", y))
    y = layers.conv(f"{name}_conv2", y, channels, 3, padding=1, bias=False)
    y = layers.batch_norm(f"{name}_bn2", y)
    if stride != 1 or static_shape(x.ty)[1] != channels:
        x = layers.conv(f"{name}_shortcut_conv", x, channels, 1, stride=stride, bias=False)
        x = layers.batch_norm(f"{name}_shortcut_bn", x)
    y = layers.emit(f"{name}_add", relax.op.add(y, x))
    return layers.relu(f"{name}_relu2", y)
