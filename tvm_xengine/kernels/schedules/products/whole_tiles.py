"""Rows of images that end with a tile of registers, so that no tile holds parts of two.

To pack a tile that begins in one row and ends in another asks for the row and its border at every
element. Where a row is a little shorter than some tiles it takes less time to multiply zeros.
"""

from __future__ import annotations

import dataclasses

from tvm_xengine.kernels.schedules.accumulation import is_contiguous
from tvm_xengine.kernels.schedules.products.contraction import Contraction

_MOST_WASTE = 1.4
"""A product in a packed tile of two rows takes 1.8 to 2.6 times as long as one in a tile of one row."""


def with_whole_tiles(contraction: Contraction, lanes: int) -> Contraction:
    """The contraction with rows as long as some vectors, if they lie side by side in the right factor."""
    *outer, row = contraction.columns
    length = -(-row.extent // lanes) * lanes
    if not outer or length == row.extent or length > _MOST_WASTE * row.extent:
        return contraction
    if not is_contiguous(contraction.right, row.var):
        return contraction
    columns = (*outer, dataclasses.replace(row, extent=length))
    return dataclasses.replace(contraction, columns=columns, row_length=row.extent)
