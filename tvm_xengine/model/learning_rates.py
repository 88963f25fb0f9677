"""The learning rates of a step, by the groups of its parameters."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tvm_xengine.model.arguments import learning_rate
from tvm_xengine.model.lr_schedules import Schedule
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.body.declaration import learning_rate_name
from tvm_xengine.training.recipe import Recipe


def current_rates(
    recipe: Recipe | None, schedule: Schedule | None, lr: float, steps_taken: int
) -> list[float]:
    """The learning rate of every group for the next step; of a step of one's own, of its ``lr``.

    Groups keep the ratio of their rates to that of the recipe's optimizer; where that is 0, and it is
    not known what it would be, their rates stay.
    """
    if recipe is None:
        return [] if schedule is None else [learning_rate(schedule(steps_taken), steps_taken)]
    base = learning_rate(lr if schedule is None else schedule(steps_taken), steps_taken)
    own = recipe.optimizer.lr
    if own:
        factor = base / own
        return [base, *(group.optimizer.lr * factor for group in recipe.groups)]
    ratios = ((group.lr_ratio, group.optimizer.lr) for group in recipe.groups)
    return [base, *(rate if ratio is None else base * ratio for ratio, rate in ratios)]


def as_inputs(rates: Collection[float], wanted: Collection[str]) -> dict[str, Array]:
    """The rates that a step takes, by the names of its inputs."""
    with np.errstate(over="ignore"):  # an infinite one is refused by the step
        given = {learning_rate_name(k): np.asarray(rate, "float32") for k, rate in enumerate(rates)}
    return {name: given[name] for name in wanted if name in given}
