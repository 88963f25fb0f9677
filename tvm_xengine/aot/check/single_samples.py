"""Whether single samples compute what a batch computes, on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from tvm_xengine.aot.check.batches import seeded_batches
from tvm_xengine.aot.check.reference import PLATFORM, Trial, host_step, kept_step
from tvm_xengine.compiler.forward import build_forward
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.batch import with_batch_size
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.forward_ops import outputs_of
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.body.assembly import GRADIENT_WEIGHT
from tvm_xengine.training.forward.evaluation import evaluation_module, result_names
from tvm_xengine.training.single_samples import GRADIENT_SCALE, SingleSamples
from tvm_xengine.training.step import TrainingStep

_TOLERANCE = 1e-3
"""Allowed difference, relative to one plus the size: sums are made in another order, which deep networks
amplify. A batch that is no mean over its samples differs in the first digit."""


def check_single_samples(
    model: ForwardModel,
    training: TrainingStep,
    trial: Trial,
    single: SingleSamples | None,
) -> None:
    """Compare the forward pass, and a training step, over single samples with that of a batch.

    Parameters
    ----------
    model
        The one that is evaluated.
    training, single
        With plain SGD: optimizers such as Adam make a whole step of the rounding of a gradient that is 0,
        as that of a bias in front of a norm is.

    Raises
    ------
    UnsupportedModelError
        If they differ; the message says by how much.
    """
    (batch,) = islice(seeded_batches(trial.inputs), 1)
    (wholes,) = _outputs(model, [batch])
    singles = _outputs(with_batch_size(model, 1), samples_of(batch, model.batch_size))
    for whole, parts in zip(wholes, zip(*singles, strict=True), strict=True):
        # A model that returns its loss returns the mean over the batch.
        together = np.concatenate(parts) if whole.ndim else np.asarray(parts, np.float64).mean()
        _check_near("the forward pass", model.batch_size, np.asarray(together), whole)
    if single is None:
        return
    step = host_step(training)
    step.write(training.initial_state)
    settings = {name: np.asarray(1.0, "float32") for name in training.hyper_names}
    step.step({**batch, **settings})
    expected = step.read_state()
    found = _accumulated(training, single, batch, settings, model.batch_size)
    for name, value in found.items():
        _check_near(f"the update of {name}", model.batch_size, value, expected[name])


def samples_of(batch: Mapping[str, Array], count: int) -> list[dict[str, Array]]:
    """A batch as batches of one sample each."""
    return [
        {name: value[at : at + 1] if value.ndim else value for name, value in batch.items()}
        for at in range(count)
    ]


def _outputs(model: ForwardModel, batches: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
    """The outputs for each batch, by one program: compiling it takes most of the time."""
    names = result_names(len(outputs_of(model.main)))
    module = evaluation_module(model)
    forward = build_forward(module, len(model.input_names), PLATFORM, results=names)
    forward.write({name: model.state[name] for name in forward.names(Role.PARAMETER)})
    given = ({name: batch[name] for name in model.input_names} for batch in batches)
    made = (forward.step(one) for one in given)
    return [[np.array(results[name]) for name in names] for results in made]


def _accumulated(
    training: TrainingStep,
    single: SingleSamples,
    batch: Mapping[str, Array],
    settings: Mapping[str, Array],
    count: int,
) -> Mapping[str, Array]:
    """The state after one update of accumulated gradients."""
    state = {**single.constants, **training.initial_state}
    state |= {name: np.zeros_like(state[param]) for param, name in single.sums.items()}
    accumulate = kept_step(lower_step(single.accumulate, PLATFORM, func_name="accumulate"))
    accumulate.write({name: state[name] for name in accumulate.read_state()})
    weight = 0.0
    for one in samples_of(batch, count):
        weight += float(accumulate.step(one).get(GRADIENT_WEIGHT, 1.0))
    sums = {name: accumulate.read_state()[name] for name in single.sums.values()}
    apply = kept_step(lower_step(single.apply, PLATFORM, func_name="apply"))
    apply.write({name: {**state, **sums}[name] for name in apply.read_state()})
    apply.step({**settings, GRADIENT_SCALE: np.asarray(1 / weight, "float32")})
    found = apply.read_state()
    return {name: found[name] for name in training.updated_names if name in found}


def _check_near(what: str, count: int, found: Array, expected: Array) -> None:
    found, expected = (np.asarray(value, np.float64).reshape(-1) for value in (found, expected))
    error = (
        np.max(np.abs(found - expected) / (1 + np.abs(expected)), initial=0.0)
        if found.shape == expected.shape
        else np.inf
    )
    if not error <= _TOLERANCE:
        raise UnsupportedModelError(
            f"{what} over {count} single samples differs by {error:.1e} (of one plus its size) from that"
            " of a batch: the samples of a batch depend on each other in this model, or its loss is no"
            " mean over samples; leave out infer and accumulate"
        )
