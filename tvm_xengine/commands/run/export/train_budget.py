"""The choice of layers to train: what ``export`` takes for it, and what it shows of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm_xengine.aot.layers.choose import LayerChoice
from tvm_xengine.commands import app
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.run.steps import frozen_int8
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.errors import InvalidDataError
from tvm_xengine.explain.words.framed import add_number_columns, framed
from tvm_xengine.model.layer_scores import read_scores
from tvm_xengine.model.training import Training
from tvm_xengine.session.layers.gradient_scores import layer_scores
from tvm_xengine.session.layers.train_budget import MOST_TRIALS, TrainBudget
from tvm_xengine.session.training_data import training_data

_FILE = ".toml"


def check_train_budget(options: app.ExportOptions) -> None:
    """Check what can be said of the options before a model is loaded.

    Raises
    ------
    InvalidScoresError
        If the file of scores cannot be read.
    UsageError
        If options contradict each other.
    """
    scores = options.layers.train_scores
    if scores is None:
        if options.layers.train_budget:
            raise UsageError(
                "--train-budget chooses layers by their scores: give a file or samples with --train-scores"
            )
        return
    if options.schedule.schedule is not None:
        raise UsageError("--train-scores plans each choice of layers; it takes no --schedule")
    if _is_file(scores):
        read_scores(Path(scores))


def train_budget(training: Training, options: app.ExportOptions, reporter: Reporter) -> TrainBudget:
    """The scores, read or computed, and the limits of a step."""
    given, limits = str(options.layers.train_scores), dict(options.layers.train_budget)
    scores: Any = given
    if not _is_file(given):
        try:
            data = training_data(training, given)
        except InvalidDataError as error:
            raise InvalidDataError(
                f"--train-scores takes a .toml file of scores, or samples: {error}"
            ) from error
        scores = layer_scores(training, data, seed=options.step.model.seed, progress=reporter)
    return TrainBudget(
        scores,
        time_us=limits.get("time"),
        energy_uj=limits.get("energy"),
        frozen=frozen_int8(training, options.step.frozen),
        most_trials=int(limits.get("trials", MOST_TRIALS)),
    )


def _is_file(scores: str) -> bool:
    return Path(scores).suffix.lower() == _FILE


def show_choice(choice: LayerChoice, terminal: Terminal) -> None:
    """Show which layers are trained, which are not and why, and how good the choice is."""
    found = choice.choice
    table = framed("layers to train")
    table.add_column("layer", overflow="fold")
    add_number_columns(table, "score", "state bytes")
    table.add_column("", overflow="fold")
    for row in _rows(choice):
        said = "trained" if row["is_trained"] else f"frozen: {row['reason']}"
        table.add_row(row["name"], f"{row['score']:.4g}", f"{row['state_bytes']}", said)
    terminal.show(table)
    trained = sum(choice.is_trained.values())
    terminal.note(
        f"{trained} of {len(choice.layers)} layers are trained: score {found.score:.4g} of"
        f" {choice.total_score:.4g}, at most {found.bound:.4g} is possible (gap {found.gap:.1%});"
        f" subsets planned: {found.plans}"
    )
    if choice.is_interrupted:
        named = [name for at in sorted(found.chosen or ()) for name in choice.layers[at].parameters]
        terminal.note(
            f"the search was interrupted; no package is written; --train-only {' '.join(named)} exports the"
            " choice so far without a search"
        )
        return
    if found.gap > 0 and choice.is_unproven:
        terminal.note(
            "for some subsets no plan was found, which proves nothing: a longer --time-limit may find one"
        )
    if found.gap > 0 and choice.is_nearly_refused:
        terminal.note(
            "some subsets have plans whose code is just too much for flash, which does not prove that every"
            " plan's is: --optimize size makes less code"
        )


def choice_document(choice: LayerChoice | None) -> dict[str, object]:
    """The key of the JSON report; null without a choice."""
    if choice is None:
        return {"choice": None}
    found = choice.choice
    return {
        "choice": {
            "score": found.score,
            "bound": found.bound,
            "gap": found.gap,
            "total_score": choice.total_score,
            "plans": found.plans,
            "layers": _rows(choice),
        }
    }


def _rows(choice: LayerChoice) -> list[dict[str, Any]]:
    return [
        {
            "name": layer.name,
            "score": layer.score,
            "state_bytes": choice.state_bytes[at],
            "is_trained": choice.is_trained[layer.name],
            "reason": choice.reason(at),
        }
        for at, layer in enumerate(choice.layers)
    ]
