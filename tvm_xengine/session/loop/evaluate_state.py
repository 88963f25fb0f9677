"""Loss and accuracy of a model with a given state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.forward import build_forward
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError, InvalidStateError, NotFiniteError
from tvm_xengine.frontends.roles import TensorRole, Use
from tvm_xengine.model.metrics import metrics_of_loss
from tvm_xengine.model.source import Source
from tvm_xengine.model.training import Training
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.inputs import is_finite, nan_count
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.session.loop.batches import leading, whole_batches
from tvm_xengine.state.model_state import refuse_names
from tvm_xengine.training.forward.evaluation import evaluation_module, result_names


@checked
def evaluate_state(
    training: Training,
    state: Mapping[str, Array],
    data: Data,
    platform: Platform,
    stores: Stores | None = None,
) -> dict[str, float]:
    """Metrics of a model with the tensors of `state`, over the validation samples of `data`.

    Nothing is planned and no gradient is compiled. Without held-out samples all samples count.

    Parameters
    ----------
    training
        Says which model, and which loss.
    state
        Tensors by the model's own names, such as `read_state` returns.
    data
        Samples of inputs and targets.
    platform
        Its home device evaluates.
    stores
        Where compiled kernels are stored; None stores none.

    Raises
    ------
    InvalidStateError
        If `state` lacks a tensor of the model or has one more, or one has another shape.
    InvalidDataError
        If the loss of `training` has no metrics of its own.
    NotFiniteError
        If a parameter or statistic of `state` has a NaN, or a metric is not finite; names the first
        such tensor of the state, or else the first output.
    """
    source = training.source
    metrics = metrics_of_loss(training.known_recipe.loss, source.evaluation)
    if not metrics:
        raise InvalidDataError(
            "this loss is a function of its own, and cannot be evaluated alone; give a loss by name, or"
            " a module of PyTorch"
        )
    forward = build_forward(
        evaluation_module(source.evaluation),
        len(source.inputs),
        platform,
        results=result_names(source.outputs),
        store=None if stores is None else stores.kernels,
    )
    values = _values(training, state, forward.names(Role.PARAMETER))
    _refuse_nan(values, source)
    forward.write(values)
    samples = data if data.validation else replace(data, validation=data.train)
    targets = [name for name in samples.train if name not in source.inputs]
    totals = dict.fromkeys(metrics, 0.0)
    count, size = 0, source.evaluation.batch_size
    batches = samples.validation_batches(size)
    for batch, counted in whole_batches(batches, source.evaluation):
        made = forward.step({name: batch[name] for name in source.inputs})
        outputs = [leading(made[name], counted, size) for name in result_names(source.outputs)]
        given = [leading(batch[name], counted, size) for name in targets]
        for name, metric in metrics.items():
            with np.errstate(all="ignore"):  # what is not finite is an error of its own
                value = float(metric(*outputs, *given))
            if not math.isfinite(value):
                results = zip(result_names(source.outputs), outputs, strict=True)
                place = f"for the samples {count} to {count + counted - 1} of those evaluated"
                raise _not_finite(f"{name} is {value} {place}", _kept(values, source), results)
            totals[name] += value * counted
        count += counted
    return {name: total / count for name, total in totals.items()}


def _values(
    training: Training, state: Mapping[str, Array], wanted: Sequence[str]
) -> dict[str, Array]:
    """The values of the parameters of the evaluation function, from tensors by the model's names."""
    source, model = training.source, training.source.evaluation
    roles = (*source.training.roles, *model.roles)
    known = {name for role in roles for name in role.names} | {
        *source.order,
        *source.unused,
        *source.counters,
    }
    values: dict[str, Any] = dict(model.state)
    given = {
        role.variable: next((state[name] for name in role.names if name in state), None)
        for role in model.roles
    }
    missing = [
        role.name
        for role in model.roles
        if given[role.variable] is None
        and role.variable in wanted
        and (role.is_parameter or _is_saved_statistic(role, source))
    ]
    refuse_names(missing, [name for name in state if name not in known])
    for role in model.roles:
        found, expected = given[role.variable], model.state[role.variable].shape
        if found is None:
            continue
        if found.shape != expected:
            raise InvalidStateError(
                f"{role.name} must have shape {expected}, the state has {found.shape}"
            )
        values[role.variable] = found
    return {name: values[name] for name in wanted}


def _kept(values: Mapping[str, Array], source: Source) -> Iterator[tuple[str, Array]]:
    """Parameters and statistics, by name; a constant may hold infinities, such as those of a mask."""
    for role in source.evaluation.roles:
        if role.variable in values and (role.is_parameter or role.use is Use.STATISTIC):
            yield role.name, values[role.variable]


def _refuse_nan(values: Mapping[str, Array], source: Source) -> None:
    for name, value in _kept(values, source):
        if count := nan_count(value):
            raise NotFiniteError(
                f"{name} of the state has a NaN in {count} of {value.size} elements; take a state from"
                " before the run that made it diverged",
                name,
            )


def _not_finite(
    found: str, kept: Iterator[tuple[str, Array]], outputs: Iterator[tuple[str, Any]]
) -> NotFiniteError:
    """What of the state, or else of the outputs, made a metric that is not finite."""
    for name, value in kept:
        if not is_finite(np.asarray(value)):
            return NotFiniteError(f"{found}: {name} of the state has an infinity", name)
    for name, value in outputs:
        if not is_finite(np.asarray(value)):
            return NotFiniteError(
                f"{found}: the state is finite, and the output {name} is not; the model overflows for"
                " these samples",
                name,
            )
    return NotFiniteError(
        f"{found}: state and outputs are finite; look at the targets: the loss overflows, or none counts",
        "loss",
    )


def _is_saved_statistic(role: TensorRole, source: Source) -> bool:
    """Whether a state holds this buffer, which the model writes while it is trained."""
    is_saved = not source.order or any(name in source.order for name in role.names)
    return role.use is Use.STATISTIC and is_saved
