"""Which layers a package trains: those of the greatest score whose functions fit memory, time and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_xengine.aot.layers.known import StepLimits
from tvm_xengine.aot.layers.trials import TrainingOf, Trials
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.prepare import OnProgress
from tvm_xengine.aot.prepared import PreparedExport
from tvm_xengine.checks.names import some
from tvm_xengine.errors import ExportError, NoScheduleError
from tvm_xengine.frontends.layers import Layer
from tvm_xengine.planning.subsets.choose import Choice, choose_subset
from tvm_xengine.planning.subsets.relaxation import Row

_UNITS = {"time": "us", "energy": "uJ"}
"""Of the rows that are not of bytes."""
_MOST_REASONS = 3
"""So many layers stand in the message that none can be trained."""


@dataclass(frozen=True)
class LayerChoice:
    """The layers that a package trains.

    Attributes
    ----------
    layers
        From which were chosen.
    choice
        The best subset of them, with bound, number of plans and what has no plan.
    rows
        Limits that every subset obeys, by what they are of.
    state_bytes
        Parameters and optimizer state of each layer.
    prepared
        The package of the chosen layers.
    is_interrupted
        Whether an interrupt (Ctrl-C) has ended the search; it is the best choice by then.
    """

    layers: tuple[Layer, ...]
    choice: Choice[PreparedExport]
    rows: dict[str, Row]
    state_bytes: tuple[int, ...]
    prepared: PreparedExport
    is_interrupted: bool = False

    @property
    def is_trained(self) -> dict[str, bool]:
        """Whether each layer is trained, by name."""
        chosen = self.choice.chosen or frozenset()
        return {layer.name: at in chosen for at, layer in enumerate(self.layers)}

    @property
    def total_score(self) -> float:
        """Of all layers."""
        return sum(layer.score for layer in self.layers)

    @property
    def is_unproven(self) -> bool:
        """Whether some subset was left because no plan was found, and not because there is none."""
        return not all(r.is_proven or r.is_measured for r in self.choice.refused.values())

    @property
    def is_nearly_refused(self) -> bool:
        """Whether the code of some subset is too much by so little that another plan may have less."""
        return any(r.is_measured and not r.is_proven for r in self.choice.refused.values())

    def reason(self, at: int) -> str:
        """Why a layer is not trained; empty for one that is."""
        return why_not(self.layers, self.choice, self.rows, at)


def choose_layers(
    layers: Sequence[Layer],
    training_of: TrainingOf,
    options: ExportOptions,
    limits: StepLimits,
    most_plans: int,
    on_progress: OnProgress = lambda _: None,
) -> LayerChoice:
    """The layers of the greatest total score that can be trained in the memory, time and energy given.

    Each subset that is tried is planned as `prepare_export` plans it; the chosen one is then planned with
    the full time limit. The bound takes three things for granted: to train more layers never needs less,
    the code of a subset is nearly the same in each plan (`trials`), and ops take nearly as much in a step
    that trains fewer (`known`). A plan that disproves the last begins the search again without it.

    Parameters
    ----------
    options
        Memory is limited by their regions or platform.
    most_plans
        So many subsets are planned at most.

    Raises
    ------
    ExportError
        If no entry point of the package trains.
    InvalidPlatformError
        If energy is limited and the platform does not say what ops take.
    KeyboardInterrupt
        If an interrupt ended the search before any layer was found that can be trained.
    NoScheduleError
        If no layer can be trained; it says why for each.
    """
    if not any(entry.learns for entry in options.entries):
        raise ExportError(
            "layers are chosen to be trained, but no entry point trains: add train_step, or accumulate"
            " and apply"
        )
    trials = Trials(tuple(layers), training_of, options, limits, on_progress)
    choice, rows = _chosen(trials, most_plans)
    if choice.plan is None and trials.is_stopped:
        raise KeyboardInterrupt  # which a trial took
    if choice.plan is None:
        reasons = [
            f"{layer.name}: {why_not(trials.layers, choice, rows, at)}"
            for at, layer in enumerate(layers[:_MOST_REASONS])
        ]
        if choice.plans >= most_plans and choice.bound > 0:
            raise NoScheduleError(
                f"no layers to train were found in {choice.plans} trials of subsets; allow more with"
                " --train-budget trials=N (most_trials)"
            )
        raise NoScheduleError(f"no layer can be trained; {'; '.join(reasons)}")
    state_bytes = tuple(trials.state.state_bytes)
    prepared = trials.in_full(choice.plan)
    return LayerChoice(trials.layers, choice, rows, state_bytes, prepared, trials.is_stopped)


def _chosen(trials: Trials, most_plans: int) -> tuple[Choice[PreparedExport], dict[str, Row]]:
    """The best subset by rows that no plan has disproved."""
    scores = [layer.score for layer in trials.layers]
    while True:
        rows = trials.rows()
        choice = choose_subset(
            scores,
            list(rows.values()),
            trials.plan_of,
            most_plans,
            trials.plan_of_in_full,
            lambda: trials.is_stopped,
        )
        if trials.is_stopped or rows.keys() <= trials.rows().keys():
            return choice, rows


def why_not(
    layers: Sequence[Layer], choice: Choice[PreparedExport], rows: dict[str, Row], at: int
) -> str:
    """Why a layer is not trained; empty for one that is."""
    chosen = choice.chosen or frozenset()
    if at in chosen:
        return ""
    if not layers[at].score > 0:
        return "its score is 0"
    for what, row in rows.items():
        if (needed := row.amount_of(frozenset({at}))) > row.limit:
            return _too_much("alone", what, needed, row.limit)
    refusals = [(subset, r) for subset, r in choice.refused.items() if at in subset]
    for subset, refusal in sorted(refusals, key=lambda pair: len(pair[0])):
        if subset - {at} <= chosen:
            others = some([layers[i].name for i in sorted(subset - {at})], most=4)
            return f"with {others} trained, {refusal.reason}" if others else refusal.reason
    for what, row in rows.items():
        if (needed := row.amount_of(chosen | {at})) > row.limit:
            return _too_much("with what is trained", what, needed, row.limit)
    return "other layers have a greater score together"


def _too_much(beside: str, what: str, needed: float, limit: float) -> str:
    unit = _UNITS.get(what, "bytes")
    return f"{beside} it takes {needed:.6g} {unit} of {what} at least, more than {limit:.6g}"
