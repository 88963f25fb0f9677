"""A model asked about kernels of the processors that they were measured on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tvm_xengine.cost_models.calibration.calibration import Calibration
from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.cost_models.judging.evaluate import HeldOut
from tvm_xengine.cost_models.models.model_file import ModelFile
from tvm_xengine.cost_models.prediction.prior import predicted_on
from tvm_xengine.errors import InvalidDatasetError


def asked_about(model: ModelFile, data: Dataset) -> HeldOut:
    """What a model says of each kernel on the processor that it was measured on."""
    # Code for any processor of a kind names none, and counts as this machine's.
    targets = [
        json.dumps({"kind": "llvm", "mcpu": processor}) for processor in data.processors
    ] or data.targets
    return HeldOut(data, predicted_on(model, targets, data.table))


def unlearned_networks(model: ModelFile, data: Dataset) -> Dataset:
    """The kernels of families that a model has not learned from.

    Raises
    ------
    InvalidDatasetError
        When there are none.
    """
    learned = set(model.card.get("families", ()))
    rows = [k for k, names in enumerate(data.families) if learned.isdisjoint(names)]
    if not rows:
        raise InvalidDatasetError(
            "expected kernels of networks that the model has not learned from"
            f" ({', '.join(sorted(learned))}), found none; name a dataset that has some with --dataset"
        )
    return data.take(rows)


def unseen_processors(model: ModelFile, data: Dataset) -> tuple[str, ...]:
    """Those of the dataset that a model has no label of, sorted."""
    return tuple(sorted(set(data.processors) - model.processors))


def before_and_after(
    model: ModelFile, data: Dataset, processor: str, known: Calibration | None
) -> Iterator[tuple[str, HeldOut]]:
    """What a model says of a processor: without a calibration, and with one of that processor.

    Both are asked about the same kernels, of which none calibrated.
    """
    if known is not None and known.processor != processor:
        known = None
    used = set() if known is None else set(known.kernels)
    part = data.take(
        np.flatnonzero(
            [
                name == processor and kernel not in used
                for name, kernel in zip(data.processors, data.kernels, strict=True)
            ]
        )
    )
    if len(part):
        yield "not calibrated", asked_about(replace(model, calibration=None), part)
    if len(part) and known is not None:
        yield "calibrated", asked_about(replace(model, calibration=known), part)
