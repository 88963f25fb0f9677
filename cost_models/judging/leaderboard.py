"""Every model on every split, with confidence intervals, as a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.judging.evaluate import SPLITS, HeldOut, held_out_of
from tvm_xengine.cost_models.judging.fold_jobs import FoldJob, FoldStore, answers
from tvm_xengine.cost_models.judging.metrics import noise_floor
from tvm_xengine.cost_models.models.model import CostModel

_RESAMPLES = 1000
"""Bootstrap samples (Efron, Annals of Statistics 1979): the ends of an interval vary by a few per cent."""

_CONFIDENCE = (0.025, 0.975)
"""Ends of an interval of 95 %, as is usual."""

_SAID = {
    "random": "a fifth of the kernels at random, five times",
    "family": "each family of networks in turn",
    "size": "the fifth of the kernels with most work",
    "unusual": "kernels of random networks",
    "source": "kernels of each source (generated, library) in turn",
    "processor": "each processor in turn",
}
"""What each split holds out."""


@dataclass(frozen=True)
class Row:
    """A model on a split.

    Attributes
    ----------
    median_error, total_ratio
        Median of |predicted / measured - 1|, and the sum of predictions by that of measurements,
        each with its interval of 95 %: value, low, high.
    within_25_ratio, kendall, coverage_ratio
        As of `Metrics`.
    """

    model: str
    kernels: int
    median_error: tuple[float, float, float]
    total_ratio: tuple[float, float, float]
    within_25_ratio: float
    kendall: float
    coverage_ratio: float


def leaderboard(
    models: Sequence[CostModel],
    data: Dataset,
    store: FoldStore | None = None,
    processes: int = 1,
    on_fold: Callable[[int, int, str], None] | None = None,
) -> dict[str, list[Row]]:
    """The rows of each split that the data allows; best median error first.

    Parameters
    ----------
    store, processes, on_fold
        As of :func:`answers`.
    """
    pairs = [(split, model) for split in SPLITS for model in models]
    jobs = {
        (split, model.name): [FoldJob(model, split, *fold) for fold in SPLITS[split](data)]
        for split, model in pairs
    }
    flat = [job for group in jobs.values() for job in group]
    found = iter(answers(flat, data, store or FoldStore(), processes, on_fold))
    board: dict[str, list[Row]] = {}
    for (split, name), group in jobs.items():
        if group:
            tested = [(job.test, next(found)) for job in group]
            board.setdefault(split, []).append(row_of(name, held_out_of(data, tested)))
    return {
        split: sorted(rows, key=lambda row: row.median_error[0]) for split, rows in board.items()
    }


def row_of(name: str, held_out: HeldOut, seed: int = 0) -> Row:
    """The figures of a model's predictions, and how far they would vary with other kernels."""
    metrics = held_out.metrics()
    measured, predicted = held_out.data.time_us, held_out.predicted.time_us
    rng = np.random.default_rng(seed)
    count = len(measured)
    drawn = [rng.integers(count, size=count) for _ in range(_RESAMPLES)]
    errors = np.abs(predicted / measured - 1)
    medians = np.array([np.median(errors[rows]) for rows in drawn])
    totals = np.array([predicted[rows].sum() / measured[rows].sum() for rows in drawn])
    return Row(
        model=name,
        kernels=count,
        median_error=_interval(metrics.median_error_ratio, medians),
        total_ratio=_interval(float(predicted.sum() / measured.sum()), totals),
        within_25_ratio=metrics.within_25_ratio,
        kendall=metrics.kendall,
        coverage_ratio=metrics.coverage_ratio,
    )


def _interval(value: float, resampled: NDArray[np.float64]) -> tuple[float, float, float]:
    low, high = np.quantile(resampled, _CONFIDENCE)
    return value, float(low), float(high)


def page(board: Mapping[str, Sequence[Row]], data: Dataset, described: Sequence[str]) -> str:
    """The leaderboard as Markdown.

    Parameters
    ----------
    described
        Paragraphs on where the data comes from, and what the models were trained with.
    """
    lines = ["# Cost models", ""]
    for paragraph in described:
        lines += [paragraph, ""]
    noise = noise_floor(data.rounds_us, data.families)
    if noise is not None:
        lines += [
            f"First round against last round of the same kernel: median {noise.median_error_ratio:.1%},"
            f" {noise.within_25_ratio:.0%} within 25 %; no model can be better than that.",
            "",
        ]
    lines += [
        "Median error is of |predicted / measured - 1|, total is the sum of predictions by that of"
        " measurements, both with a bootstrap interval of 95 % over kernels; inside is the share of"
        " measurements in the model's interval, which should hold 80 %. Locked families, which no model"
        " has seen, are not in here (`costs judge`).",
        "",
    ]
    for split, rows in board.items():
        title = f"## Held out: {_SAID.get(split, split)} (`{split}`)"
        lines += [title, "", f"{max(row.kernels for row in rows)} kernels are judged.", ""]
        lines += ["| model | median error | total | within 25 % | Kendall | inside |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [_line(row) for row in rows]
        lines += [""]
    return "\n".join(lines)


def _line(row: Row) -> str:
    error, total = row.median_error, row.total_ratio
    return (
        f"| {row.model} | {error[0]:.1%} ({error[1]:.1%} to {error[2]:.1%})"
        f" | {total[0]:.2f} ({total[1]:.2f} to {total[2]:.2f})"
        f" | {row.within_25_ratio:.0%} | {row.kendall:.3f} | {row.coverage_ratio:.0%} |"
    )
