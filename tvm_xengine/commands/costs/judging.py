"""Judge a model on what it has not seen; a line of the ledger for each look."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_xengine.commands.costs.given import loaded
from tvm_xengine.commands.costs.models import as_rows
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.cost_models.calibration.calibration import Calibration, read_calibration
from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.judging.evaluate import HeldOut
from tvm_xengine.cost_models.judging.unseen import (
    asked_about,
    before_and_after,
    unlearned_networks,
    unseen_processors,
)
from tvm_xengine.cost_models.labels.held_out import (
    FAMILIES,
    LEDGER,
    NETWORKS,
    held_out_part,
    note_look,
)
from tvm_xengine.cost_models.labels.shipped import SHIPPED_LABELS
from tvm_xengine.cost_models.models.model_file import ModelFile, read_model
from tvm_xengine.cost_models.prediction.predict import SHIPPED_MODEL, calibration_path
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.report.costs import print_families, print_metrics


@dataclass(frozen=True)
class Judging:
    """What is judged, and why.

    Attributes
    ----------
    on
        `FAMILIES` of networks that are held out, ``processors``, or `NETWORKS`.
    cost_model, ledger, calibration
        None is the shipped model, the ledger of the shipped labels, and this machine's calibration.
    """

    on: str
    why: str
    cost_model: Path | None = None
    ledger: Path | None = None
    calibration: Path | None = None


def judge(dataset: Path | None, wanted: Judging, terminal: Terminal) -> dict[str, Any]:
    """Judge a model on held-out families, on processors, or on networks that it has no labels of."""
    path = wanted.cost_model or SHIPPED_MODEL
    model, data = read_model(path), loaded(dataset, terminal)
    name = f"{path.name} ({model.card.get('kernels', '?')} kernels)"
    document: dict[str, Any] = {}

    def note(found: HeldOut, scope: str, how: str = "") -> None:
        note_look(
            found,
            wanted.ledger or SHIPPED_LABELS / LEDGER,
            model=f"{name}, {how}" if how else name,
            why=wanted.why,
            scope=scope,
        )

    if wanted.on == FAMILIES:
        found = asked_about(model, held_out_part(data))
        note(found, FAMILIES)
        rows = {path.name: found.metrics(), **found.by_source()}
        print_metrics(terminal.console, "locked families", rows)
        return as_rows(rows)
    if wanted.on == NETWORKS:
        found = asked_about(model, unlearned_networks(model, data))
        note(found, NETWORKS)
        families = found.by_family()
        rows = {path.name: found.metrics(), **found.by_source()}
        print_metrics(terminal.console, "networks that the model has not learned from", rows)
        print_families(terminal.console, "each of them", families)
        return {**as_rows(rows), "families": as_rows(families)}
    for processor in _unseen(model, data):
        rows = {}
        calibration = _calibration(wanted.calibration)
        for how, found in before_and_after(model, data, processor, calibration):
            note(found, processor, how)
            rows[how] = found.metrics()
            rows |= {f"{how}, {source}": metrics for source, metrics in found.by_source().items()}
        print_metrics(terminal.console, f"{processor}, which the model has no labels of", rows)
        document[processor] = as_rows(rows)
    return document


def _unseen(model: ModelFile, data: Dataset) -> tuple[str, ...]:
    processors = unseen_processors(model, data)
    if not processors:
        raise InvalidDatasetError(
            f"expected kernels of a processor that the model has no labels of"
            f" ({', '.join(sorted(model.processors))}), found none; collect some there"
        )
    return processors


def _calibration(path: Path | None) -> Calibration | None:
    """The one that was named, else this machine's."""
    path = path or calibration_path()
    return read_calibration(path) if path.exists() else None
