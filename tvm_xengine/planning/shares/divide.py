"""Shares of a batch by what devices achieve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

_MOST_TRIALS = 4
"""So many divisions are planned at most: the first by speed, each later one by what the last one showed.
A division is lowered and costed anew, which takes seconds; the third one hardly moves a sample."""

_Plan = TypeVar("_Plan")


@dataclass(frozen=True)
class Trial(Generic[_Plan]):
    """A division of the batch that was planned.

    Attributes
    ----------
    samples
        The share of each device.
    value
        Of the plan; less is better.
    busy_us
        How long each device computes.
    """

    samples: tuple[int, ...]
    value: float
    busy_us: tuple[float, ...]
    plan: _Plan


def proportional_shares(batch: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Whole shares of a batch in proportion to weights, of at least one sample each.

    Raises
    ------
    ValueError
        If the batch has fewer samples than there are weights.
    """
    if batch < len(weights):
        raise ValueError(f"a batch of {batch} has no sample for each of {len(weights)} replicas")
    spare, total = batch - len(weights), sum(weights)
    wanted = [spare * weight / total for weight in weights]
    shares = [int(one) for one in wanted]
    rest = sorted(range(len(weights)), key=lambda k: (shares[k] - wanted[k], k))
    for k in rest[: spare - sum(shares)]:
        shares[k] += 1
    return tuple(1 + share for share in shares)


def best_division(
    first: Sequence[int],
    attempt: Callable[[tuple[int, ...]], Trial[_Plan] | None],
    has_time: Callable[[], bool] = lambda: True,
) -> Trial[_Plan] | None:
    """The best of some divisions, each as devices were busy in the last one; None if `attempt` finds none.

    A device that was busy for longer with its samples, because it is slower or because it recomputes for
    want of memory, gets fewer of them. Ends where a division is not better than the one before.

    Parameters
    ----------
    first
        Samples of each device to begin with.
    attempt
        Plans a division; the same one for the same samples.
    has_time
        Whether another one may be tried after the first.
    """
    best: Trial[_Plan] | None = None
    samples, tried = tuple(first), set[tuple[int, ...]]()
    while samples not in tried and len(tried) < _MOST_TRIALS and (not tried or has_time()):
        tried.add(samples)
        trial = attempt(samples)
        if trial is None or (best is not None and trial.value >= best.value):
            break
        best = trial
        rates = [n / max(busy, 1e-9) for n, busy in zip(samples, trial.busy_us, strict=True)]
        samples = proportional_shares(sum(samples), rates)
    return best
