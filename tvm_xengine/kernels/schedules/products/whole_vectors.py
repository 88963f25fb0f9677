"""Rows of images that end where vectors do, so that no vector holds parts of two.

To pack a vector that begins in one row and ends in another asks for the row and its border at every
element. Where a row is a little shorter than some vectors it takes less time to multiply zeros.
"""

from __future__ import annotations

import dataclasses

from tvm_xengine.kernels.schedules.accumulation import is_contiguous
from tvm_xengine.kernels.schedules.products.contraction import Contraction

_MOST_WASTE = 1.4
"""A product takes 1.2 to 3 times as long where vectors are packed from two rows: one core of Zen 4, 4 to
256 channels, rows of 6 to 56."""


def with_whole_vectors(contraction: Contraction, lanes: int) -> Contraction:
    """The contraction with rows as long as some vectors, or half of one, if they lie side by side."""
    *outer, row = contraction.columns
    part = lanes // 2 if 2 * row.extent <= lanes else lanes
    length = -(-row.extent // part) * part
    if not outer or length == row.extent or length > _MOST_WASTE * row.extent:
        return contraction
    if not is_contiguous(contraction.right, row.var):
        return contraction
    columns = (*outer, dataclasses.replace(row, extent=length))
    return dataclasses.replace(contraction, columns=columns, row_length=row.extent)
