"""How alike a model finds kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.features.table import FeatureTable
from tvm_xengine.cost_models.models.whole_view import corrected_view

_SMOOTH_SHARE = 0.6
"""Of the likeness, what distances between features make. Of 0, 0.2, 0.4, 0.6 and 0.8, the median error
on three processors, each left out and calibrated by the labels of some networks, was the least (10.7 %,
and 11.4 % of leaves alone)."""

_LENGTH = 0.5
"""Root mean square of standardised differences that makes 0.6 of 1; of 0.15 to 2, chosen so, too."""

_MOST_DEVIATIONS = 4.0
"""Of a feature from its mean, so that one that hardly any kernel has does not outweigh all others."""


@dataclass(frozen=True)
class Likeness:
    """A covariance of kernels in 0..1: 1 of a kernel with itself.

    It is the share of trees that put two kernels into one leaf, and a squared exponential of the distance of
    their features (Rasmussen and Williams 2006, section 4.2.1). Leaves know what matters for a time, and
    distances how far apart kernels are.

    Attributes
    ----------
    leaves
        Where each kernel falls in the trees, (kernels, trees).
    features
        Of each kernel, (kernels, features).
    """

    leaves: NDArray[np.int_]
    features: NDArray[np.float64]

    def between(self, rows: Sequence[int], columns: Sequence[int]) -> NDArray[np.float64]:
        """Of some kernels with others, (rows, columns)."""
        together = np.zeros((len(rows), len(columns)), dtype=np.int32)
        for leaf in self.leaves.T:
            together += leaf[rows][:, None] == leaf[columns][None]
        near = np.exp(-self._distances(rows, columns) / (2 * _LENGTH**2))
        share = together / self.leaves.shape[1]
        return np.asarray((1 - _SMOOTH_SHARE) * share + _SMOOTH_SHARE * near, np.float64)

    def _distances(self, rows: Sequence[int], columns: Sequence[int]) -> NDArray[np.float64]:
        """Mean squares of the differences of standardised features, (rows, columns)."""
        one, other = self._standardised[rows], self._standardised[columns]
        squares = np.square(one).sum(axis=1)[:, None] + np.square(other).sum(axis=1)
        return np.asarray((squares - 2 * one @ other.T) / max(1, one.shape[1]), np.float64)

    @cached_property
    def _standardised(self) -> NDArray[np.float64]:
        """The features that differ, in standard deviations from their means."""
        differing = self.features[:, np.ptp(self.features, axis=0) > 0]
        places = (differing - differing.mean(axis=0)) / differing.std(axis=0)
        return np.asarray(np.clip(places, -_MOST_DEVIATIONS, _MOST_DEVIATIONS), np.float64)


def likeness_of(
    leaves_of: Callable[[FeatureTable], NDArray[np.int_]], *tables: FeatureTable
) -> Likeness:
    """How alike the kernels of these tables are, one table behind the other."""
    return Likeness(
        np.vstack([leaves_of(table) for table in tables]),
        np.vstack([corrected_view(table) for table in tables]),
    )
