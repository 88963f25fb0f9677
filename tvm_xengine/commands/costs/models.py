"""Train, evaluate and inspect cost models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tvm_xengine.commands.costs.datasets import inspect_dataset
from tvm_xengine.commands.costs.given import learnable
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.cost_models.dataset.dataset import Dataset, DatasetFolder
from tvm_xengine.cost_models.dataset.quantities import MEMORY, QUANTITIES
from tvm_xengine.cost_models.judging.evaluate import hold_out
from tvm_xengine.cost_models.judging.metrics import Metrics, noise_floor
from tvm_xengine.cost_models.models.adapted import AdaptedTrees
from tvm_xengine.cost_models.models.baselines import LogLinear, NearestNeighbours, Roofline
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees
from tvm_xengine.cost_models.models.card import make_card
from tvm_xengine.cost_models.models.model import CostModel
from tvm_xengine.cost_models.models.model_file import (
    PRIOR_MODEL,
    ModelFile,
    read_model,
    write_model,
)
from tvm_xengine.cost_models.prediction.call_memory import CallMemory
from tvm_xengine.cost_models.prediction.predict import SHIPPED_MODEL, architecture_of
from tvm_xengine.cost_models.prediction.transfer import (
    device_names,
    evaluate_correction,
    evaluate_transfer,
    other_devices,
)
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.report.costs import NOISE, print_facts, print_families, print_metrics


@dataclass(frozen=True)
class Evaluation:
    """What is held out, of which quantity, and which models are compared."""

    splits: Sequence[str]
    quantity: str
    with_baselines: bool
    is_sketch: bool


def train_model(
    dataset: Path | None, path: Path, seed: int, terminal: Terminal, *, from_scratch: bool
) -> dict[str, Any]:
    """Train a model on all kernels of a dataset, and write it with its card.

    It begins from the prior that ships, where that knows the kind of processor.
    """
    data = learnable(dataset, terminal)
    architectures = tuple(sorted({architecture_of(target) for target in set(data.targets)}))
    sources = tuple(sorted(set(data.sources)))
    prior = read_model(PRIOR_MODEL)
    knows = all(
        set(needed) <= set(known)
        for needed, known in (
            (architectures, prior.architectures),
            (sources, prior.sources),
            (prior.predictor.feature_names, data.table.names),
        )
    )
    model = AdaptedTrees(seed=seed) if knows and not from_scratch else BoostedTrees(seed=seed)
    with terminal.console.status("training, and holding out one family after the other"):
        predictor = model.fit(data)
        card = make_card(model, data, predictor)
    if isinstance(model, AdaptedTrees):
        card["prior_targets"] = prior.card.get("targets", {})
    write_model(ModelFile(predictor, architectures, sources, card), path)
    print_facts(terminal.console, f"{model.name} of {len(data)} kernels", _summary(card))
    return card


def evaluate_models(dataset: Path | None, wanted: Evaluation, terminal: Terminal) -> dict[str, Any]:
    """Hold out parts of a dataset, and show how well the rest predicts them."""
    data = QUANTITIES[wanted.quantity](learnable(dataset, terminal))
    trees = BoostedTrees()
    models: list[CostModel] = [trees.sketched() if wanted.is_sketch else trees]
    if wanted.quantity == MEMORY:
        models = [CallMemory(), *models]
    if wanted.with_baselines:
        models += [Roofline(), NearestNeighbours(), LogLinear()]
    document: dict[str, Any] = {}
    for split in wanted.splits:
        noise = noise_floor(data.rounds_us, data.families)
        rows: dict[str, Metrics] = {} if noise is None else {NOISE: noise}
        for model in models:
            with terminal.reporting() as reporter:
                advance = reporter.stage(f"{split}: {model.name}")
                held_out = hold_out(model, data, split, advance)
            rows[model.name] = held_out.metrics()
            rows |= {f"{model.name}, {name}": m for name, m in held_out.by_source().items()}
            if split == "family" and model is models[0]:
                families = held_out.by_family()
                title = f"{model.name}, each family held out"
                print_families(terminal.console, title, families)
                document["families"] = as_rows(families)
        print_metrics(terminal.console, f"split by {split}", rows)
        document[split] = as_rows(rows)
    return document


def evaluate_transfers(
    dataset: Path, measurements: Sequence[int], cost_model: Path | None, terminal: Terminal
) -> dict[str, Any]:
    """Show how well a few measurements on another device do."""
    data = DatasetFolder(dataset).load()
    least = 2 * max(measurements)
    if cost_model is not None:
        if len(data) < least:
            raise InvalidDatasetError(
                f"{dataset}: expected at least {least} kernels, found {len(data)}; collect more, or"
                " ask for fewer measurements"
            )
        model = read_model(SHIPPED_MODEL if cost_model == Path("shipped") else cost_model)
        title = f"from {cost_model}"
        return _shown({title: evaluate_correction(model, data, measurements)}, terminal)
    found = {f"to {name}": rows for name, rows in _transfers(data, measurements)}
    if not found:
        counts = ", ".join(f"{n} of {name}" for name, n in Counter(device_names(data)).items())
        raise InvalidDatasetError(
            f"{dataset}: expected two devices with at least {least} kernels each, found"
            f" {counts or 'none'}; collect more, or ask for fewer measurements"
        )
    return _shown(found, terminal)


def inspect_file(path: Path | None, terminal: Terminal) -> dict[str, Any]:
    """Show what a dataset or a cost model holds."""
    path = path or SHIPPED_MODEL
    if path.is_dir():
        return inspect_dataset(path, terminal)
    model = read_model(path)
    facts: dict[str, Any] = {
        "features": model.predictor.feature_set,
        "architectures": list(model.architectures),
    }
    print_facts(terminal.console, path.name, facts | _summary(model.card))
    return facts | dict(model.card)


def as_rows(rows: Mapping[str, Metrics]) -> dict[str, Any]:
    """Metrics as JSON."""
    return {name: asdict(metrics) for name, metrics in rows.items()}


def _transfers(
    data: Dataset, measurements: Sequence[int]
) -> list[tuple[str, Mapping[str, Metrics]]]:
    """For each device with enough kernels, a transfer from all others."""
    found: list[tuple[str, Mapping[str, Metrics]]] = []
    for name in sorted(set(device_names(data))):
        source, target = other_devices(data, name)
        if len(source) and len(target) >= 2 * max(measurements):
            found.append((name, evaluate_transfer(BoostedTrees(), source, target, measurements)))
    return found


def _shown(tables: Mapping[str, Mapping[str, Metrics]], terminal: Terminal) -> dict[str, Any]:
    for title, rows in tables.items():
        print_metrics(terminal.console, title, rows)
    return {title: as_rows(rows) for title, rows in tables.items()}


def _summary(card: Mapping[str, Any]) -> dict[str, Any]:
    errors = card.get("held_out_families", {})
    return {
        "kernels": card.get("kernels"),
        "families": card.get("families"),
        "median error on held-out families": errors.get("median_error_ratio"),
        "Kendall on held-out families": errors.get("kendall"),
        "median error of measuring again": (card.get("noise_floor") or {}).get(
            "median_error_ratio"
        ),
    }
