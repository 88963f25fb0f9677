"""ResNet-8, the image classifier of MLPerf Tiny (Banbury et al. 2021)."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers


def resnet8(layers: Layers, image: relax.Expr, num_classes: int) -> relax.Expr:
    """Three blocks with 16, 32 and 64 channels; 78,186 parameters with 10 classes."""
    x = layers.conv("conv1", image, 16, 3, padding=1)
    x = layers.relu("relu1", layers.batch_norm("bn1", x))
    for stage, channels in enumerate((16, 32, 64), start=1):
        x = _block(layers, f"stage{stage}", x, channels, stride=1 if stage == 1 else 2)
    x = layers.global_avg_pool("pool", x)
    return layers.linear("fc", x, num_classes)


def _block(layers: Layers, name: str, x: relax.Expr, channels: int, stride: int) -> relax.Expr:
    """relu(bn(conv(relu(bn(conv(x))))) + shortcut(x)); the shortcut has no norm, all convs biases."""
    y = layers.conv(f"{name}_conv1", x, channels, 3, stride=stride, padding=1)
    y = layers.relu(f"{name}_relu1", layers.batch_norm(f"{name}_bn1", y))
    y = layers.conv(f"{name}_conv2", y, channels, 3, padding=1)
    y = layers.batch_norm(f"{name}_bn2", y)
    if stride != 1:
        x = layers.conv(f"{name}_shortcut", x, channels, 1, stride=stride)
    return layers.relu(f"{name}_relu2", layers.add(f"{name}_add", x, y))
