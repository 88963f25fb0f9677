"""What measured kernels teach beyond a prior model: of all processors, or of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xgboost
from numpy.typing import NDArray

from tvm_xengine.cost_models.models.cold_calls import ColdCalls

Limits = tuple[float, float]
"""Of the logarithm of a correction."""


class Estimate(NamedTuple):
    """Means of members and their standard deviations, (rows,) each."""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]


@dataclass(frozen=True)
class Corrections:
    """Two factors on times as small trees, and what cold caches cost.

    Attributes
    ----------
    machine, caches
        Boosters of the logarithms of the machine's factor, and of what is left with cold caches; their
        members differ by what they draw at random.
    machine_limits, caches_limits
        Between which the mean of the members is kept.
    """

    machine: tuple[xgboost.Booster, ...]
    caches: tuple[xgboost.Booster, ...]
    machine_limits: Limits
    caches_limits: Limits
    cold: ColdCalls

    def of_machine(self, matrix: xgboost.DMatrix) -> Estimate:
        """The logarithm of the machine's factor."""
        return _mean(self.machine, matrix, self.machine_limits)

    def of_caches(self, matrix: xgboost.DMatrix) -> Estimate:
        """The logarithm of what is left with cold caches."""
        return _mean(self.caches, matrix, self.caches_limits)


def _mean(
    members: tuple[xgboost.Booster, ...], matrix: xgboost.DMatrix, limits: Limits
) -> Estimate:
    """What members say together; zeros where there are none."""
    if not members:
        return Estimate(np.zeros(matrix.num_row()), np.zeros(matrix.num_row()))
    each = np.array([member.predict(matrix) for member in members], dtype=np.float64)
    return Estimate(np.clip(each.mean(axis=0), *limits), each.std(axis=0))
