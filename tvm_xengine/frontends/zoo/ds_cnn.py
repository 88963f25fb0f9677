"""DS-CNN (Zhang et al. 2017), the keyword spotter of MLPerf Tiny (Banbury et al. 2021)."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers
from tvm_xengine.relax_ir.types import static_shape

_CHANNELS = 64
_NUM_BLOCKS = 4
"""As in MLPerf Tiny's reference model."""


def ds_cnn(layers: Layers, spectrogram: relax.Expr, num_classes: int) -> relax.Expr:
    """Four depthwise separable blocks; 23,756 parameters with 12 classes.

    The usual input is (batch, 1, 49 frames, 10 coefficients).
    """
    height, width = static_shape(spectrogram.ty)[2:]
    padding = _same_padding((height, width), (10, 4), stride=2)
    x = layers.conv("conv1", spectrogram, _CHANNELS, (10, 4), stride=2, padding=padding)
    x = layers.relu("relu1", layers.batch_norm("bn1", x))
    x = layers.dropout("dropout1", x, 0.2)
    for block in range(1, _NUM_BLOCKS + 1):
        x = layers.conv(f"depthwise{block}", x, _CHANNELS, 3, padding=1, groups=_CHANNELS)
        x = layers.relu(f"depthwise{block}_relu", layers.batch_norm(f"depthwise{block}_bn", x))
        x = layers.conv(f"pointwise{block}", x, _CHANNELS, 1)
        x = layers.relu(f"pointwise{block}_relu", layers.batch_norm(f"pointwise{block}_bn", x))
    x = layers.dropout("dropout2", x, 0.4)
    x = layers.global_avg_pool("pool", x)
    return layers.linear("fc", x, num_classes)


def _same_padding(
    size: tuple[int, int], kernel: tuple[int, int], stride: int
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right), so that the output has ceil(size / stride), as TensorFlow pads."""
    high, wide = (
        max((-(-extent // stride) - 1) * stride + window - extent, 0)
        for extent, window in zip(size, kernel, strict=True)
    )
    return high // 2, wide // 2, high - high // 2, wide - wide // 2
