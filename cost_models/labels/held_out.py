"""Families of networks that no choice about a model has looked at, and the ledger of every look.

Training and the splits of the leaderboard leave them out. Who judges a model on them writes a line to the
ledger first, so that everybody can see how often it was done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from tvm_xengine.checks.documents import typed
from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.judging.evaluate import HeldOut
from tvm_xengine.cost_models.models.model import Predictor
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.append_only import AppendOnlyFile

HELD_OUT_FAMILIES = frozenset(("conformer", "cspdarknet", "regnet", "srresnet"))
"""Neither the shipped model nor a table before it has seen these designs."""

LEDGER = "ledger.jsonl"


@dataclass(frozen=True)
class Look:
    """A line of the ledger: a model that was judged on the held-out families.

    Attributes
    ----------
    model
        What was judged, in words.
    digest
        Of the labels that it was judged by.
    why
        What was decided by it, or to be shown.
    """

    date: str
    model: str
    why: str
    kernels: int
    digest: str
    median_error_ratio: float
    total_ratio: float
    coverage_ratio: float


def is_held_out(data: Dataset) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows occur in a held-out family, (rows,)."""
    return np.array([bool(HELD_OUT_FAMILIES.intersection(names)) for names in data.families])


def open_part(data: Dataset) -> Dataset:
    """The rows that models may learn from and be chosen by."""
    return data.take(np.flatnonzero(~is_held_out(data)))


def judge(
    predictor: Predictor, data: Dataset, ledger: Path, described: Mapping[str, str]
) -> HeldOut:
    """What a model predicts for the held-out rows, after the ledger has a line of it.

    Parameters
    ----------
    ledger
        File that the line is appended to.
    described
        The fields `model` and `why` of the line.

    Raises
    ------
    InvalidDatasetError
        When no kernel is of a held-out family.
    """
    rows = np.flatnonzero(is_held_out(data))
    if not len(rows):
        raise InvalidDatasetError(
            "expected kernels of held-out families"
            f" ({', '.join(sorted(HELD_OUT_FAMILIES))}), found none"
        )
    part = data.take(rows)
    found = HeldOut(part, predictor.predict(part.table))
    metrics = found.metrics()
    times = " ".join(f"{key} {us:.4g}" for key, us in zip(part.kernels, part.time_us, strict=True))
    look = Look(
        date=datetime.now(timezone.utc).date().isoformat(),
        model=described["model"],
        why=described["why"],
        kernels=len(part),
        digest=hashlib.sha256(times.encode()).hexdigest()[:16],
        median_error_ratio=round(metrics.median_error_ratio, 4),
        total_ratio=round(float(found.predicted.time_us.sum() / part.time_us.sum()), 4),
        coverage_ratio=round(metrics.coverage_ratio, 4),
    )
    AppendOnlyFile(ledger).append(asdict(look))
    return found


def looks(ledger: Path) -> tuple[Look, ...]:
    """Every line of a ledger."""
    return tuple(AppendOnlyFile(ledger).read(lambda row: typed(Look, row)))
