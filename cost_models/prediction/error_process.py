"""A Gaussian process of a model's errors: what some known ones say of the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.models.interval_widths import COVERED_DEVIATIONS
from tvm_xengine.cost_models.prediction.likeness import Likeness

_ALIKE_SHARE = 0.9
"""Of the rest of an error, what a kernel that is wholly alike has, too."""

_NOISE_DEVIATION = 0.05
"""Of the logarithm of a measurement; that of kernels above 20 us (`_NOISE_RATIO` of the trees)."""

_HUBER_DEVIATIONS = 1.345
"""Huber's constant: 95 % as efficient as the mean where errors are Gaussian (Huber 1964)."""

_REWEIGHTINGS = 5
"""Rounds of reweighting; chosen."""

_FEW = 20
"""So many measured errors may widen intervals in full; chosen."""

_COVERAGE = 0.8
"""Share of times that intervals are meant to hold, as in `COVERED_DEVIATIONS`."""


class Posterior(NamedTuple):
    """What known errors say, as logarithms.

    Attributes
    ----------
    mean, deviation
        Of the other errors, (others,) each.
    left_out
        Each known error less what all other known ones say of it, (known,).
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    left_out: NDArray[np.float64]


@dataclass(frozen=True)
class ErrorProcess:
    """Errors of a model, as logarithms, before any is known.

    They are a Gaussian process (Rasmussen and Williams 2006, section 2.2; for the residuals of a model
    Kennedy and O'Hagan, JRSS B 2001). Its prior is what the model says of itself: how wide its intervals
    are, and how alike it finds two kernels (`Likeness`). Kernels of one group have a part of their errors in
    common.

    Attributes
    ----------
    deviations
        Of each error, with what it has in common with others, (kernels,).
    common
        What it has in common with all of its group, (kernels,).
    groups
        Number of the group of each kernel, (kernels,).
    likeness
        Of all kernels.
    """

    deviations: NDArray[np.float64]
    common: NDArray[np.float64]
    groups: NDArray[np.int_]
    likeness: Likeness

    def posterior(
        self,
        known: Sequence[int],
        others: Sequence[int],
        errors: NDArray[np.float64],
        networks: Sequence[int] | None = None,
    ) -> Posterior:
        """The errors of `others`, from those of the `known` kernels.

        Parameters
        ----------
        networks
            Which network each known kernel is of, where the others are of none of them; None where they may
            be of the same.
        """
        own = self._own(others) ** 2 + self.common[others] ** 2
        between = self._covariance(others, known)
        unshared = (1 - _ALIKE_SHARE) * self._own(known) ** 2 + _NOISE_DEVIATION**2
        blocks = _blocks(range(len(known)) if networks is None else networks)
        inverse, widening = _fit(self._covariance(known, known) + np.diag(unshared), errors, blocks)
        weighted = inverse @ errors
        mean = np.asarray(between @ weighted, dtype=np.float64)
        variance = own - np.einsum("ij,ij->i", between @ inverse, between)
        deviation = np.sqrt(np.maximum(variance, _NOISE_DEVIATION**2))
        return Posterior(mean, deviation * widening, weighted / np.diag(inverse))

    def _own(self, rows: Sequence[int]) -> NDArray[np.float64]:
        """Of each error, without what it has in common with all of its group."""
        rest = self.deviations[rows] ** 2 - self.common[rows] ** 2
        return np.sqrt(np.maximum(rest, _NOISE_DEVIATION**2))

    def _covariance(self, rows: Sequence[int], columns: Sequence[int]) -> NDArray[np.float64]:
        together = self.groups[rows][:, None] == self.groups[columns][None]
        common = np.outer(self.common[rows], self.common[columns]) * together
        own = np.outer(self._own(rows), self._own(columns))
        return np.asarray(common + _ALIKE_SHARE * own * self.likeness.between(rows, columns))


def _blocks(networks: Iterable[int]) -> list[NDArray[np.int_]]:
    """The kernels of each network."""
    of = np.array(list(networks))
    return [np.flatnonzero(of == network) for network in np.unique(of)]


def _fit(
    covariance: NDArray[np.float64],
    errors: NDArray[np.float64],
    blocks: Sequence[NDArray[np.int_]],
) -> tuple[NDArray[np.float64], float]:
    """The inverse covariance of the known errors, and how much wider intervals must be.

    Each error is compared with what all others say of it, which has a closed form (Rasmussen and
    Williams, section 5.4.2). One that lies far off gets a variance of its own, so that it counts
    less (Huber, Annals of Mathematical Statistics 1964); a few kernels are many times slower on
    another processor, and the rest is not. Intervals widen until four errors out of five lie
    inside, each compared with what the kernels of other blocks say. Few errors say little, so they widen
    little, and they never narrow.
    """
    used = odd = np.zeros(len(errors))
    for _ in range(_REWEIGHTINGS):
        used = odd
        inverse = np.asarray(np.linalg.inv(covariance + np.diag(odd)), dtype=np.float64)
        precision = np.diag(inverse)
        left_out = np.abs(inverse @ errors) / precision
        variance = 1.0 / precision - odd
        odd = np.maximum(0.0, (left_out / _HUBER_DEVIATIONS) ** 2 - variance)
    count = len(errors)
    level = min(1.0, _COVERAGE * (count + 1) / count)
    scaled = np.concatenate([_scaled(inverse, errors, used, block) for block in blocks])
    needed = float(np.quantile(scaled, level)) / COVERED_DEVIATIONS
    return inverse, math.pow(max(1.0, needed), min(1.0, count / _FEW))


def _scaled(
    inverse: NDArray[np.float64],
    errors: NDArray[np.float64],
    odd: NDArray[np.float64],
    block: NDArray[np.int_],
) -> NDArray[np.float64]:
    """Errors of a block from what all others say of it, in standard deviations, (block,)."""
    own = np.linalg.inv(inverse[np.ix_(block, block)])
    left_out = np.abs(own @ (inverse @ errors)[block])
    return np.asarray(left_out / np.sqrt(np.diag(own) - odd[block]), dtype=np.float64)
