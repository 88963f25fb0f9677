"""Schedulers of ``torch.optim`` as learning rates by the number of steps taken."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

_FIXED = ("momentum", "betas")
"""Options that a compiled step keeps, and that some schedulers change."""

_KEPT = "{} changes the momentum, which a compiled step keeps; create it with cycle_momentum=False"

_SAME_RATIO = 1e-9
"""Rates of groups whose ratio changes by less than this share differ by rounding only."""


def is_torch_scheduler(schedule: object) -> bool:
    """Whether `schedule` is a scheduler of PyTorch, which need not be installed."""
    return any(
        kind.__module__ == "torch.optim.lr_scheduler" for kind in type(schedule).__mro__
    ) and hasattr(schedule, "optimizer")


class SchedulerRates:
    """The rates that a scheduler of PyTorch gives when it is stepped after every training step.

    It works on a copy, without the parameters: the scheduler and its optimizer stay as they are.

    Raises
    ------
    ValueError
        If the scheduler has been stepped already, or needs more than the number of steps.
    """

    def __init__(self, scheduler: LRScheduler) -> None:
        from torch.optim.lr_scheduler import ReduceLROnPlateau

        name = type(scheduler).__name__
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name} needs a metric, so its rates are not known by the number of steps; set"
                " step.lr after each validation, or give a function of the number of steps taken"
            )
        if taken := _steps_taken(scheduler):
            raise ValueError(
                f"expected a scheduler that was not stepped, got {name} after"
                f" {taken} steps; give a new one: its rates are looked up by the"
                " number of steps taken, also after a checkpoint"
            )
        if _cycles_momentum(scheduler):
            raise ValueError(_KEPT.format(name))
        self._name = name
        self._scheduler = _copied(scheduler)
        self._fixed = self._options()
        self._rates = [self._read()]

    def __call__(self, steps_taken: int) -> float:
        while len(self._rates) <= steps_taken:
            with warnings.catch_warnings():
                # PyTorch warns because the copied optimizer takes no step.
                warnings.simplefilter("ignore")
                self._scheduler.step()
            self._rates.append(self._read())
        return self._rates[steps_taken]

    def _read(self) -> float:
        """The rate of the first group, when nothing but a common factor has changed."""
        if self._options() != self._fixed:
            raise ValueError(_KEPT.format(self._name))
        groups = self._scheduler.optimizer.param_groups
        first, first_initial = float(groups[0]["lr"]), float(groups[0]["initial_lr"])
        for group in groups[1:]:
            rate, initial = float(group["lr"]), float(group["initial_lr"])
            if abs(rate * first_initial - first * initial) > _SAME_RATIO * abs(
                first_initial * initial
            ):
                raise ValueError(
                    f"{self._name} changes the rates of its groups by different factors, and a"
                    " compiled step keeps the ratio of the rates of its groups"
                )
        return first

    def _options(self) -> list[dict[str, Any]]:
        groups = self._scheduler.optimizer.param_groups
        return [{name: group[name] for name in _FIXED if name in group} for group in groups]


def _steps_taken(scheduler: LRScheduler) -> int:
    """How often a scheduler, or one of those that are chained in it, was stepped."""
    chained: list[LRScheduler] = getattr(scheduler, "_schedulers", [])
    own: int = getattr(scheduler, "last_epoch", 0)
    return max([own, *map(_steps_taken, chained)])


def _cycles_momentum(scheduler: LRScheduler) -> bool:
    """Whether a scheduler, or one of those that are chained in it, changes the momentum later on."""
    chained: list[LRScheduler] = getattr(scheduler, "_schedulers", [])
    return getattr(scheduler, "cycle_momentum", False) or any(map(_cycles_momentum, chained))


def _copied(scheduler: LRScheduler) -> LRScheduler:
    """A copy with the same parameters, and an optimizer without state."""
    optimizer = scheduler.optimizer
    memo: dict[int, Any] = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    memo[id(optimizer.state)] = defaultdict(dict)
    return copy.deepcopy(scheduler, memo)
