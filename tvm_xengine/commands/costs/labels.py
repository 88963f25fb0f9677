"""Labels that ship, and what is judged with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.costs.given import learnable, note_missing
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.cost_models.dataset.dataset import Dataset, DatasetFolder
from tvm_xengine.cost_models.judging.fold_jobs import FoldStore, learners
from tvm_xengine.cost_models.judging.leaderboard import leaderboard, page
from tvm_xengine.cost_models.labels.join import joined
from tvm_xengine.cost_models.labels.label_file import has_labels, read_labels, write_labels
from tvm_xengine.cost_models.labels.pack import pack, this_generator
from tvm_xengine.cost_models.labels.shipped import SHIPPED_LABELS
from tvm_xengine.cost_models.labels.unpack import unpack
from tvm_xengine.cost_models.measure.measurements import writable_cache_folder
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees
from tvm_xengine.cost_models.models.catalogue import cost_model, cost_models
from tvm_xengine.cost_models.models.model import CostModel
from tvm_xengine.files.atomic_write import write_bytes_atomically
from tvm_xengine.kernels.threads.settings import usable_cores


def pack_labels(dataset: Path, labels: Path, terminal: Terminal) -> dict[str, Any]:
    """Add the labels of a dataset to those of a folder."""
    known = read_labels(labels) if has_labels(labels) else ()
    files = [joined(known, file) for file in pack(DatasetFolder(dataset))]
    paths = [write_labels(file, labels) for file in files]
    for file, path in zip(files, paths, strict=True):
        terminal.note(f"{len(file.labels)} labels in {path}")
    return {"files": [str(path) for path in paths], "kernels": sum(len(f.labels) for f in files)}


def unpack_labels(labels: Path | None, dataset: Path, terminal: Terminal) -> dict[str, Any]:
    """Make a dataset of labels and their features."""
    files = read_labels(labels or SHIPPED_LABELS)
    with terminal.reporting() as reporter:
        found, missing = unpack(files, DatasetFolder(dataset), reporter.stage("reading labels"))
    note_missing(found, missing, terminal)
    return {"kernels": found, "missing": missing}


def write_leaderboard(
    dataset: Path | None, path: Path, names: Sequence[str], terminal: Terminal, *, is_sketch: bool
) -> dict[str, Any]:
    """Compare models on all splits."""
    known = cost_models()
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"expected models among {', '.join(known)}, got {unknown[0]!r}")
    models: list[CostModel] = [cost_model(name) for name in names or known]
    if is_sketch:
        models = [m.sketched() if isinstance(m, BoostedTrees) else m for m in models]
    data = learnable(dataset, terminal)
    store = FoldStore(writable_cache_folder("leaderboard") / "folds.jsonl")
    with terminal.reporting() as reporter:
        advance = reporter.stage("holding out")
        board = leaderboard(models, data, store, usable_cores(), advance)
    command = f"tvm-xengine costs leaderboard -o {path.name}{' --sketch' if is_sketch else ''}"
    write_bytes_atomically(path, page(board, data, _origin(data, dataset, command)).encode())
    terminal.note(f"{len(models)} models on {len(board)} splits in {path}")
    return {split: [asdict(row) for row in rows] for split, rows in board.items()}


def _origin(data: Dataset, dataset: Path | None, command: str) -> list[str]:
    """Where the labels of a page come from, and with what it was written."""
    known = [file.machine for file in read_labels(SHIPPED_LABELS)] if dataset is None else []
    names = sorted({f"{m.processor} ({m.llvm_cpu}, {m.cores} cores)" for m in known})
    machines = ", ".join(names) or f"{len(set(data.machines))} machines"
    here = this_generator()
    today = datetime.now(timezone.utc).date().isoformat()
    learned_with = (f"{name} {found}" for name, found in learners().items())
    versions = ", ".join(dict.fromkeys((*here.versions, *learned_with)))
    return [
        f"{len(data)} kernels, timed on {machines}, one thread, in the caches that a step leaves.",
        f"Made by `{command}` at commit {here.commit[:12] or 'unknown'} on {today}, with"
        f" {versions}.",
        "Adapted trees begin from a prior that learned 22,960 kernels of another processor, families of the"
        " same names among them; the other models know these labels only.",
    ]
