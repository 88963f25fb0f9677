"""Costs that a model has no ground for: they say "unknown, measure"."""

from __future__ import annotations

from tvm_xengine.scheduling.problem import CostSource, OpCost

MOST_WIDTH_RATIO = 4.0
"""Upper by lower end of an interval beyond which a prediction is no basis of a plan: the time may be twice
or half of what is said. 96 % of the kernels of families that are not locked are within it."""

UNKNOWN = "unknown, measure"


def is_unknown(cost: OpCost) -> bool:
    """Whether a cost is a typical roofline, or a prediction whose interval is wider than that."""
    if cost.source is CostSource.ROOFLINE:
        return True
    return cost.source.is_predicted and cost.hi_us > MOST_WIDTH_RATIO * cost.lo_us
