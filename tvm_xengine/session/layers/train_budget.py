"""Which layers are trained, as a user asks for it: scores of layers and limits of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tvm_xengine.aot.layers.choose import LayerChoice, choose_layers
from tvm_xengine.aot.layers.known import StepLimits
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.prepare import OnProgress
from tvm_xengine.checks.arguments import checked_fields
from tvm_xengine.errors import NoInt8LayerError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.roles import Use
from tvm_xengine.model.arguments import limit, whole_number
from tvm_xengine.model.int8 import Int8, with_frozen_int8
from tvm_xengine.model.layer_scores import checked_scores, read_scores, scored_layers
from tvm_xengine.model.source import Source
from tvm_xengine.model.training import Training
from tvm_xengine.training.body.declaration import SEED
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep

MOST_TRIALS = 60
"""Trials of subsets: a choice among eight layers that fits by half takes about twenty."""


@checked_fields
@dataclass(frozen=True)
class TrainBudget:
    """Train the layers with the greatest sum of scores whose step fits memory, time and energy.

    Attributes
    ----------
    scores
        By name of a layer, a parameter or a module, or a TOML file with lines such as
        ``"net.conv1" = 0.3``; `layer_scores` computes them from samples. A parameter belongs to the
        innermost name, and one without any stays frozen.
    time_us, energy_uj
        What a step may take, as estimated; None does not limit.
    frozen
        How the frozen layers of each choice compute; None is as they are. The training step is given
        without it. A choice of which no frozen layer can be int8 is taken as it is.
    most_trials
        So many subsets are planned at most; the best one by then is taken.
    """

    scores: Mapping[str, float] | str | Path
    time_us: float | None = None
    energy_uj: float | None = None
    frozen: Int8 | None = None
    most_trials: int = MOST_TRIALS

    def __post_init__(self) -> None:
        limit("time_us", self.time_us)
        limit("energy_uj", self.energy_uj)
        whole_number("most_trials", self.most_trials, 1)

    @property
    def given_scores(self) -> dict[str, float]:
        """The scores by name.

        Raises
        ------
        InvalidScoresError
            If one is no finite number of at least 0, or the file cannot be read.
        """
        given = self.scores
        return checked_scores(given) if isinstance(given, Mapping) else read_scores(Path(given))


def choose_trained(
    training: Training,
    budget: TrainBudget,
    options: ExportOptions,
    on_progress: OnProgress = lambda _: None,
) -> LayerChoice:
    """The layers of a training step that a package trains; see `choose_layers`."""
    layers = scored_layers(training.roles, budget.given_scores)

    def training_of(names: Sequence[str]) -> tuple[ForwardModel, TrainingStep]:
        chosen = training_only(training, names, budget.frozen)
        return chosen.source.training, chosen.step

    limits = StepLimits(budget.time_us, budget.energy_uj, rewrites_frozen=budget.frozen is not None)
    return choose_layers(layers, training_of, options, limits, budget.most_trials, on_progress)


def training_only(
    training: Training, parameters: Sequence[str], frozen: Int8 | None = None
) -> Training:
    """The same training step that trains only the named parameters of ``main``.

    Parameters
    ----------
    frozen
        How frozen layers compute, if any of them can.
    """
    forward, kept = training.source.training, frozenset(parameters)
    roles = tuple(
        replace(role, use=Use.FROZEN, reason="not chosen")
        if role.use is Use.TRAINED and role.variable not in kept
        else role
        for role in forward.roles
    )
    source = replace(training.source, training=replace(forward, origins=roles))
    if frozen is not None:
        with suppress(NoInt8LayerError):
            source = with_frozen_int8(source, frozen)
    return rebuilt(training, source, training.known_recipe)


def rebuilt(training: Training, source: Source, recipe: Recipe) -> Training:
    """The step of another source or by another recipe, with the random numbers of `training`."""
    seed = int(training.step.initial_state.get(SEED, 0))
    return Training(source, recipe, build_step_by_recipe(source.training, recipe, seed=seed))
