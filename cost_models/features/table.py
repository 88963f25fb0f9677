"""Features of kernels as plain arrays, without the compiler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

FEATURE_SET = "kernel-v4"
"""Version of `tvm_xengine.cost_models.features.extract`; models of another version are refused."""

BODY_SLOTS = ("0", "1", "2", "3", "4", "5")
"""Ends of the names of features of single loop bodies, those that take most cycles first."""

PLAIN_SLOT = "plain"
"""The same for the body that takes most cycles among those written without vectors."""

STAGES = "library_stage"
"""In the names of features that only a library itself can tell: what it runs for a call."""

IS_LIBRARY, LIBRARY_VECTOR = "is_library", f"{STAGES}_vector"
"""Names of features: whether a kernel calls a library, and the width of the vectors of the library's code."""

_TOUCHED = ("log_touched_per_l1", "log_machine_l1")
"""Names of features: what accesses of known places touch, as a share of a cache, and its size; logarithms."""

_LOOKED_UP = ("gather_per_work", "element_bytes")
"""The same: accesses whose place is an element of another tensor, and the bytes of each."""


@dataclass(frozen=True)
class KernelFeatures:
    """The features of one kernel on one device.

    Attributes
    ----------
    names, values
        Equal names, in equal order, for every kernel.
    work
        Executions of statements, the unit of the rate that models predict.
    flops, moved_bytes
        Arithmetic operations, and bytes of the tensors it reads and writes, in full.
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]
    work: float
    flops: float
    moved_bytes: float


@dataclass(frozen=True)
class FeatureTable:
    """Features of many kernels, one row each.

    Attributes
    ----------
    values
        (rows, names).
    work, flops, moved_bytes
        As in `KernelFeatures`, (rows,).
    """

    feature_set: str
    names: tuple[str, ...]
    values: NDArray[np.float64]
    work: NDArray[np.float64]
    flops: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.work)

    @property
    def touched_bytes(self) -> NDArray[np.float64]:
        """Bytes of its tensors that one call reads or writes, (rows,).

        Slices and look-ups touch a part. What a library call touches only the library knows: all counts.
        """
        if not {*_TOUCHED, *_LOOKED_UP, IS_LIBRARY} <= {*self.names}:
            return self.moved_bytes
        per_cache, cache = map(self.column, _TOUCHED)
        look_ups, element_bytes = map(self.column, _LOOKED_UP)
        touched = 2.0**per_cache * (2.0**cache - 1) + look_ups * self.work * element_bytes
        is_generated = self.column(IS_LIBRARY) == 0
        return np.where(is_generated, np.minimum(touched, self.moved_bytes), self.moved_bytes)

    def take(self, rows: Iterable[int]) -> FeatureTable:
        """These rows only."""
        at = np.asarray(list(rows), dtype=int)
        return FeatureTable(
            self.feature_set,
            self.names,
            self.values[at],
            self.work[at],
            self.flops[at],
            self.moved_bytes[at],
        )

    def only(self, names: Sequence[str]) -> FeatureTable:
        """These features only, in this order."""
        if tuple(names) == self.names:
            return self
        at = [self.names.index(name) for name in names]
        return replace(self, names=tuple(names), values=self.values[:, at])

    def column(self, name: str) -> NDArray[np.float64]:
        """All values of one feature."""
        return np.asarray(self.values[:, self.names.index(name)], dtype=np.float64)


def table_of(features: Sequence[KernelFeatures], feature_set: str = FEATURE_SET) -> FeatureTable:
    """One row for each kernel."""
    return FeatureTable(
        feature_set=feature_set,
        names=features[0].names if features else (),
        values=np.array([f.values for f in features], dtype=np.float64),
        work=np.array([f.work for f in features], dtype=np.float64),
        flops=np.array([f.flops for f in features], dtype=np.float64),
        moved_bytes=np.array([f.moved_bytes for f in features], dtype=np.float64),
    )
