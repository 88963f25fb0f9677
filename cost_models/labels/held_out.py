"""What no choice about a model has looked at, and the ledger of every look.

Training and the splits of the leaderboard leave the held-out families of networks out. Who judges a model on
them, or on a processor that it has no labels of, writes a line to the ledger, so that everybody can
see how often it was done.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from tvm_xengine.checks.documents import typed
from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.judging.evaluate import HeldOut
from tvm_xengine.cost_models.labels.pack import this_generator
from tvm_xengine.cost_models.measure.this_machine import this_machine
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.files.append_only import AppendOnlyFile

HELD_OUT_FAMILIES = frozenset(("conformer", "cspdarknet", "regnet", "srresnet"))
"""Neither the shipped model nor a table before it has seen these designs."""

LEDGER = "ledger.jsonl"

FAMILIES = "families"
"""Scope of a look at the held-out families."""

NETWORKS = "networks"
"""Scope of a look at other networks that a model has not learned from."""


@dataclass(frozen=True)
class Look:
    """A line of the ledger: a model that was judged on what it had not seen.

    Attributes
    ----------
    model
        What was judged, in words.
    digest
        Of the labels that it was judged by.
    why
        What was decided by it, or to be shown.
    scope
        What was unseen: `FAMILIES`, `NETWORKS`, or a processor by LLVM's name.
    commit, machine, versions
        Where it was judged, and by which versions; empty in lines written without.
    """

    date: str
    model: str
    why: str
    kernels: int
    digest: str
    median_error_ratio: float
    total_ratio: float
    coverage_ratio: float
    scope: str = FAMILIES
    commit: str = ""
    machine: str = ""
    versions: str = ""


def is_held_out(data: Dataset) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows occur in a held-out family, (rows,)."""
    return np.array([bool(HELD_OUT_FAMILIES.intersection(names)) for names in data.families])


def open_part(data: Dataset) -> Dataset:
    """The rows that models may learn from and be chosen by."""
    return data.take(np.flatnonzero(~is_held_out(data)))


def held_out_part(data: Dataset) -> Dataset:
    """The rows of held-out families.

    Raises
    ------
    InvalidDatasetError
        When there are none.
    """
    rows = np.flatnonzero(is_held_out(data))
    if not len(rows):
        raise InvalidDatasetError(
            "expected kernels of held-out families"
            f" ({', '.join(sorted(HELD_OUT_FAMILIES))}), found none"
        )
    return data.take(rows)


def note_look(found: HeldOut, ledger: Path, *, model: str, why: str, scope: str = FAMILIES) -> None:
    """Write down what a model predicts for held-out rows: the fields of `Look`."""
    part, metrics = found.data, found.metrics()
    times = " ".join(f"{key} {us:.4g}" for key, us in zip(part.kernels, part.time_us, strict=True))
    here = this_generator()
    look = Look(
        date=datetime.now(timezone.utc).date().isoformat(),
        model=model,
        why=why,
        scope=scope,
        kernels=len(part),
        digest=hashlib.sha256(times.encode()).hexdigest()[:16],
        median_error_ratio=round(metrics.median_error_ratio, 4),
        total_ratio=round(float(found.predicted.time_us.sum() / part.time_us.sum()), 4),
        coverage_ratio=round(metrics.coverage_ratio, 4),
        commit=here.commit[:12],
        machine=this_machine().processor or "",
        versions=", ".join(here.versions),
    )
    AppendOnlyFile(ledger).append(asdict(look))


def looks(ledger: Path) -> tuple[Look, ...]:
    """Every line of a ledger."""
    return tuple(AppendOnlyFile(ledger).read(lambda row: typed(Look, row)))
