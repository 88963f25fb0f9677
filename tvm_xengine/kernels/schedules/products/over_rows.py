"""Weight gradients of convolutions as sums over the rows of images, where packing takes longer.

As a matrix product such a gradient packs each window of the image with its border, and multiplies it
by as many rows as there are output channels. Of few channels most of the time goes into packing.
"""

from __future__ import annotations

import math

from tvm.target import Target

from tvm_xengine.kernels.schedules.accumulation import Accumulation, read_accumulation
from tvm_xengine.kernels.schedules.blocks import Block
from tvm_xengine.kernels.schedules.folds import FoldWriter
from tvm_xengine.kernels.schedules.padding import pad_first
from tvm_xengine.kernels.schedules.products.contraction import Contraction, size
from tvm_xengine.kernels.schedules.streaming import sums_innermost
from tvm_xengine.kernels.targets import vector_bytes

_PACKED, _PACKING = 0.85, 50.0
"""Time of a product in a matrix product, and of packing a number, in units of 20 ps.

All times here: one core of Zen 4, of 110 gradients with 4 to 256 channels and rows of 4 to 112.
"""
_IN_REGISTERS, _FROM_COPY, _WITH_CONDITIONS = 1.05, 1.65, 3.5
"""Time of a product in a sum over rows: of short rows in as many sums as registers hold, else, and
without a copy that has a border."""

_WHOLE = 8
"""Numbers in a piece of a row: rows that leave a rest take up to twice as long."""

_SHORT = 2
"""Registers that a short row fills: the loop over them is unrolled."""

_MANY_SUMS = 9
"""A window of 3 x 3."""


def is_faster_over_rows(block: Block, contraction: Contraction, target: Target) -> bool:
    """Whether a block that is a contraction should run along the rows that it sums over."""
    fold = read_accumulation(block)
    if target.kind.name == "c" or fold is None or not fold.branches:
        return False
    row = block.summed[-1].extent
    if row % _WHOLE or not sums_innermost(block, target):
        return False
    packed = _PACKED + _PACKING / size(contraction.rows)
    return _time_over_rows(block, fold, target) < packed


def _time_over_rows(block: Block, fold: Accumulation, target: Target) -> float:
    width = vector_bytes(target, fold.dtype)
    lanes = max(width // fold.itemsize, 1)
    is_short = block.summed[-1].extent <= _SHORT * lanes
    if pad_first(block, lanes) is None:
        return _WITH_CONDITIONS if is_short else math.inf
    writer = FoldWriter(block, fold, str(block.summed[-1].var.ty.dtype), width)
    sums = math.prod(axis.extent for axis in writer.sharing_axes(block.spatial))
    return _IN_REGISTERS if is_short and sums >= _MANY_SUMS else _FROM_COPY
