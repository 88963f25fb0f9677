"""U-Net (Ronneberger et al. 2015) with padded convolutions and batch norm."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.zoo.layers import Layers
from tvm_xengine.relax_ir.types import static_shape

_WIDTHS = (64, 128, 256, 512, 1024)
"""Figure 1 of the paper: channels of each level."""


def unet(layers: Layers, image: relax.Expr, num_classes: int) -> relax.Expr:
    """A class for every pixel; 31,036,546 parameters with one channel and two classes."""
    height, width = static_shape(image.ty)[2:]
    factor = 2 ** (len(_WIDTHS) - 1)
    if height % factor or width % factor:
        raise UnsupportedModelError(f"unet: expected a size divisible by {factor}, got {height}")
    x = _double_conv(layers, "down0", image, _WIDTHS[0])
    levels = [x]
    for level, channels in enumerate(_WIDTHS[1:], start=1):
        x = _double_conv(layers, f"down{level}", layers.max_pool(f"pool{level}", x, 2), channels)
        levels.append(x)
    levels.pop()
    for level, channels in reversed(list(enumerate(_WIDTHS[:-1]))):
        x = layers.conv_transpose(f"up{level}", x, channels, 2)
        x = layers.concat(f"up{level}_concat", [levels.pop(), x], axis=1)
        x = _double_conv(layers, f"merge{level}", x, channels)
    return layers.conv("head", x, num_classes, 1)


def _double_conv(layers: Layers, name: str, x: relax.Expr, channels: int) -> relax.Expr:
    for position in (1, 2):
        layer = f"{name}_{position}"
        x = layers.conv(layer, x, channels, 3, padding=1, bias=False)
        x = layers.relu(f"{layer}_relu", layers.batch_norm(f"{layer}_bn", x))
    return x
