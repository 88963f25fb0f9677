"""Schedules of the learning rate by name."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Union, cast

from tvm_xengine.checks.arguments import checked
from tvm_xengine.model.torch_scheduler import SchedulerRates, is_torch_scheduler

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

Schedule = Callable[[int], float]
"""The learning rate of a step, by the number of steps taken before it."""

ScheduleLike = Union[Schedule, "LRScheduler"]
"""A function, or a scheduler of PyTorch that is stepped after every training step."""

_SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda _progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""Share of the learning rate, by the share of the steps after the warm-up that were taken."""

_EXPECTED = (
    "constant[:WARMUP], linear[:WARMUP], cosine[:WARMUP], step:N:FACTOR or package.module:function"
)


@checked
def named_schedule(text: str, lr: float, steps: int) -> Schedule:
    """The schedule that a text names, over `steps` steps from the learning rate `lr`.

    ``linear`` and ``cosine`` fall to 0 at the last step; a warm-up rises linearly from 0.
    ``step:N:FACTOR`` multiplies the rate by FACTOR every N steps. The function of a module is
    called with the number of steps taken and returns the rate; it is the user's own code.

    Parameters
    ----------
    text
        ``constant``, ``linear`` or ``cosine``, with ``:N`` for a warm-up of N steps;
        ``step:N:FACTOR``; or ``package.module:function``.
    lr
        The rate to start from.
    steps
        Steps in all.

    Raises
    ------
    ValueError
        If the text names none.
    """
    name, _, rest = text.partition(":")
    if name in _SHAPES:
        warmup = _whole(rest, text) if rest else 0
        return _shaped(_SHAPES[name], lr, warmup, steps)
    if name == "step":
        every, _, factor = rest.partition(":")
        return _stepped(lr, _whole(every, text), _factor(factor, text))
    if rest:
        return _function(name, rest, text)
    raise ValueError(f"expected a schedule {_EXPECTED}; got {text!r}")


def beyond(text: str, steps: int) -> str:
    """What of the schedule that a text names comes after so many steps, as a sentence; most often nothing."""
    name, _, rest = text.partition(":")
    first = rest.partition(":")[0]
    if (name not in _SHAPES and name != "step") or not first or _whole(first, text) < steps:
        return ""
    what = "changes the learning rate first" if name == "step" else "ends its warm-up"
    return f"the schedule {text} {what} after {first} steps, and this run ends after {steps}"


def as_schedule(schedule: ScheduleLike | None) -> Schedule | None:
    """A function of the number of steps taken.

    Raises
    ------
    TypeError, ValueError
        If `schedule` is none, or a scheduler of PyTorch whose rates are not known beforehand.
    """
    if is_torch_scheduler(schedule):
        return SchedulerRates(cast("LRScheduler", schedule))
    if schedule is not None and not callable(schedule):
        raise TypeError(
            "expected a function of the number of steps taken, or a scheduler of torch.optim, for"
            f" lr_schedule, got {schedule!r}"
        )
    return cast("Schedule | None", schedule)


def _shaped(shape: Callable[[float], float], lr: float, warmup: int, steps: int) -> Schedule:
    def schedule(taken: int) -> float:
        if taken < warmup:
            return lr * (taken + 1) / (warmup + 1)
        length = max(1, steps - warmup)
        return lr * shape(min(1.0, (taken - warmup) / length))

    return schedule


def _stepped(lr: float, every: int, factor: float) -> Schedule:
    def schedule(taken: int) -> float:
        return float(lr * factor ** (taken // every))

    return schedule


def _function(module: str, name: str, text: str) -> Schedule:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name)
        found(0)
    except Exception as error:
        raise ValueError(
            f"the schedule {text} cannot be called: {type(error).__name__}: {error};"
            f" expected {_EXPECTED}"
        ) from error
    finally:
        sys.path.remove(here)
    return lambda taken: float(found(taken))


def _whole(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits) < 2**31):
        raise ValueError(f"expected a whole number of steps in {text!r}; schedules are {_EXPECTED}")
    return int(digits)


def _factor(number: str, text: str) -> float:
    try:
        factor = float(number)
    except ValueError:
        factor = math.nan
    if not 0 < factor <= 1:
        raise ValueError(f"expected a factor above 0 and at most 1 in {text!r}, got {number!r}")
    return factor
