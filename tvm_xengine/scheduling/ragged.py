"""Lists of positions of different lengths in two flat arrays, as compiled code reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Ragged(NamedTuple):
    """List k is ``item[start[k]:start[k + 1]]``."""

    start: NDArray[np.int64]
    item: NDArray[np.int64]


def ragged(lists: Iterable[Sequence[int]]) -> Ragged:
    """The lists, one after the other."""
    lists = tuple(lists)
    return Ragged(
        np.concatenate([[0], np.cumsum([len(items) for items in lists])]).astype(np.int64),
        np.array([item for items in lists for item in items], dtype=np.int64),
    )
