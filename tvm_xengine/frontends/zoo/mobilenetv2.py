"""MobileNetV2 (Sandler et al. 2018)."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers
from tvm_xengine.relax_ir.types import static_shape

_STAGES = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
"""(expansion, channels, blocks, stride of the first block)."""


def mobilenetv2(layers: Layers, image: relax.Expr, num_classes: int) -> relax.Expr:
    """Seventeen inverted residual blocks; 3,504,872 parameters with 1,000 classes."""
    x = _conv_norm(layers, "conv1", image, 32, 3, stride=2)
    for stage, (expansion, channels, num_blocks, first_stride) in enumerate(_STAGES, start=1):
        for block in range(num_blocks):
            stride = first_stride if block == 0 else 1
            x = _inverted_residual(layers, f"stage{stage}_{block}", x, channels, stride, expansion)
    x = _conv_norm(layers, "conv2", x, 1280, 1)
    x = layers.dropout("dropout", layers.global_avg_pool("pool", x), 0.2)
    return layers.linear("fc", x, num_classes)


def _inverted_residual(
    layers: Layers, name: str, x: relax.Expr, channels: int, stride: int, expansion: int
) -> relax.Expr:
    """Widen by 1x1, filter each channel by 3x3, narrow by 1x1 without activation."""
    before = static_shape(x.ty)[1]
    hidden = before * expansion
    y = x if expansion == 1 else _conv_norm(layers, f"{name}_expand", x, hidden, 1)
    y = _conv_norm(layers, f"{name}_depthwise", y, hidden, 3, stride=stride, groups=hidden)
    y = layers.conv(f"{name}_project", y, channels, 1, bias=False)
    y = layers.batch_norm(f"{name}_project_bn", y)
    return layers.add(f"{name}_add", x, y) if stride == 1 and before == channels else y


def _conv_norm(
    layers: Layers,
    name: str,
    x: relax.Expr,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
) -> relax.Expr:
    """min(max(bn(conv(x)), 0), 6)."""
    y = layers.conv(
        name, x, channels, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
    )
    return layers.emit(f"{name}_relu6", relax.op.clip(layers.batch_norm(f"{name}_bn", y), 0.0, 6.0))
