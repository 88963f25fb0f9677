"""Metrics of a step's model during a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tvm_xengine.checks.arguments import checked
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError, NotFiniteError
from tvm_xengine.model.metrics import metrics_of_loss
from tvm_xengine.session.batch_names import by_name
from tvm_xengine.session.loop.batches import arguments_of, batch_size_of, leading, whole_batches
from tvm_xengine.session.loop.workload import Batches, Metric
from tvm_xengine.session.step import Step


@checked
def evaluate(
    step: Step, data: Batches, metrics: Mapping[str, Metric] | None = None
) -> dict[str, float]:
    """Metrics of the predictions for every batch, averaged by the samples that count.

    Parameters
    ----------
    step
        Predicts in evaluation mode.
    data
        As in `fit`; of a `Data` the validation samples count.
    metrics
        Functions of outputs and targets by name; None computes the loss, and the accuracy where
        targets are classes.

    Raises
    ------
    InvalidDataError
        If the data gave no batch.
    """
    totals: dict[str, float] = {}
    samples = 0
    inputs = step.training.source.inputs
    for batch, counted, size in _validation_batches(step, data):
        names = step.batch_names
        values = by_name(names, arguments_of(batch), {}, step.training.source.arguments)
        outputs = step.predict({name: values[name] for name in inputs})
        targets = [values[name] for name in names if name not in inputs]
        found = _metrics(step, metrics)
        for name, metric in found.items():
            given = (leading(one, counted, size) for one in (outputs, *targets))
            with np.errstate(all="ignore"):  # a state that diverged has its loss, as in PyTorch
                value = float(metric(*given))
            totals[name] = totals.get(name, 0.0) + value * counted
        samples += counted
    if not samples:
        raise InvalidDataError("the validation data gave no batch")
    return {name: total / samples for name, total in totals.items()}


def _metrics(step: Step, metrics: Mapping[str, Metric] | None) -> Mapping[str, Metric]:
    recipe = step.training.recipe
    evaluation = step.training.source.evaluation
    own = {} if recipe is None else metrics_of_loss(recipe.loss, evaluation)
    return own if metrics is None else metrics


def validated(
    step: Step, data: Batches, validation: Batches | None, metrics: Mapping[str, Metric] | None
) -> Mapping[str, float]:
    if validation is None:
        validation = data if isinstance(data, Data) and data.validation else None
    if validation is None or not _metrics(step, metrics):
        return {}
    return evaluate(step, validation, metrics)


def _validation_batches(step: Step, data: Batches) -> Iterator[tuple[Any, int, int]]:
    """Batches with the number of samples that count, and of all."""
    if isinstance(data, Data):
        # Of micro-batches a step takes several, the evaluation takes one.
        evaluation = step.training.source.evaluation
        size = evaluation.batch_size
        for batch, counted in whole_batches(data.validation_batches(size), evaluation):
            yield batch, counted, size
        return
    size = batch_size_of(step)
    for batch in data(0) if callable(data) else data:
        yield batch, size, size


def check_validation(found: Mapping[str, float], steps_taken: int) -> None:
    """Refuse a loss of the validation that is not finite: no step of a state that diverged shows it.

    Raises
    ------
    NotFiniteError
        Says after how many steps.
    """
    if not np.isfinite(loss := found.get("loss", 0.0)):
        raise NotFiniteError(
            f"the validation loss after step {steps_taken} is {loss}; try a smaller learning rate",
            "loss",
        )
