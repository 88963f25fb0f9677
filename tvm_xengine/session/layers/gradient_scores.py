"""Scores of layers from the gradients of samples."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice
from math import prod

import numpy as np

from tvm_xengine.aot.check.reference import PLATFORM, kept_step
from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidScoresError, UnsupportedModelError
from tvm_xengine.frontends.batch import with_batch_size
from tvm_xengine.frontends.evaluation_mode import in_evaluation_mode
from tvm_xengine.frontends.layers import layer_sums
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.model.arguments import whole_number
from tvm_xengine.model.training import Training
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.session.progress import Progress, reporter_of
from tvm_xengine.session.training_data import training_data
from tvm_xengine.training.body.assembly import GRADIENT_WEIGHT
from tvm_xengine.training.single_samples import (
    ACCUMULATE,
    SingleSamples,
    build_single_samples,
)
from tvm_xengine.training.step import TrainingStep

Single = tuple[ForwardModel, SingleSamples, int]

SAMPLES = 128
"""As many as scales of int8 are calibrated on; the order of layers settles with far fewer."""


@checked
def layer_scores(
    training: Training,
    data: Data | str,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    progress: Progress | Reporter | None = None,
) -> dict[str, float]:
    """How much the loss of samples depends on each layer: its Fisher information.

    For a layer with parameters w, and samples n = 1..N with losses L_n, it is
    ``1/N * sum over n of sum over w of (dL_n / dw)^2``: the trace of the layer's block of the empirical
    Fisher information matrix. Gradients are those of single samples, of the model as it is used (batch
    norms with running statistics, no dropout).

    TinyTrain (Kwon et al., ICML 2024) ranks layers by the Fisher information of their activations, divided
    by their memory and operations. Here the information is that of the parameters, and memory and time are
    limits of the choice.

    Parameters
    ----------
    training
        Its trained parameters are scored.
    data
        Samples, or a source as `training_data` takes it.
    samples
        So many samples count, drawn at random from the training samples.
    seed
        Of that draw.
    progress
        Called for each sample.

    Returns
    -------
    dict
        Scores by name of the layer, in the order of the model.

    Raises
    ------
    InvalidScoresError
        If a gradient is not finite, or all are 0.
    UnsupportedModelError
        If the loss of a batch is no mean over its samples.
    """
    whole_number("samples", samples, 1)
    found = data if isinstance(data, Data) else training_data(training, data)
    model, single, copies = _for_one_sample(training)
    lowered = lower_step(single.accumulate, PLATFORM, func_name=ACCUMULATE)
    step = kept_step(lowered)
    values = {**model.state, **single.constants, **lowered.constants}
    advance = reporter_of(progress).stage("scoring layers")
    zeros = {name: np.zeros_like(values[param]) for param, name in single.sums.items()}
    step.write({name: {**values, **zeros}[name] for name in step.read_state()})
    squares = dict.fromkeys(model.trained, 0.0)
    count = min(samples, found.samples)
    for position, sample in enumerate(islice(found.epoch(0, 1, seed), count)):
        advance(position, count, "samples")
        step.write(zeros)
        batch = {name: np.concatenate([array] * copies) for name, array in sample.items()}
        is_sum = GRADIENT_WEIGHT in step.step(batch)
        gradients = step.read_state()
        for param, name in single.sums.items():
            gradient = np.asarray(gradients[name], np.float64) / (copies if is_sum else 1)
            squares[param] += float(np.sum(gradient * gradient)) / count
    scores = layer_sums(model.roles, squares)
    if wrong := [name for name, score in scores.items() if not np.isfinite(score)]:
        raise InvalidScoresError(
            f"the gradients of {wrong[0]} are not finite on these samples; look at the data or the weights"
        )
    if not any(scores.values()):
        raise InvalidScoresError("the gradients of all layers are 0 on these samples")
    return scores


def _for_one_sample(training: Training) -> Single:
    """The model as it is used, the function that adds up gradients, and how many copies of a sample it takes.

    It takes one where the model can be written for one sample, and else a batch of copies, whose mean
    gradient is the same.
    """
    model = in_evaluation_mode(training.source.training)
    recipe = replace(
        training.known_recipe,
        max_gradient_value=None,
        max_gradient_norm=None,
        micro_batches=1,
        precision=None,
    )
    with suppress(UnsupportedModelError):
        sample = with_batch_size(model, 1)
        single = build_single_samples(sample, recipe, model.trained)
        if _takes_one(single, training.step, model.batch_size):
            return sample, single, 1
    return model, build_single_samples(model, recipe, model.trained), model.batch_size


def _takes_one(single: SingleSamples, step: TrainingStep, batch_size: int) -> bool:
    """Whether inputs and labels have a batch's share of a batch's elements."""
    sizes = {p.name: prod(static_shape(p.ty)) for p in single.accumulate[ACCUMULATE].params}
    whole = {p.name: prod(static_shape(p.ty)) for p in step.function.params}
    return all(
        sizes[name] * batch_size == whole[name] for name in step.batch_names if name in sizes
    )
