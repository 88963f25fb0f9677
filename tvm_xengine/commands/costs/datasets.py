"""Make and move datasets of measured kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tvm_xengine.commands.arguments.cost_options import Collection
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.cost_models.corpus.variants import variants
from tvm_xengine.cost_models.dataset.collect import CollectOptions, collect
from tvm_xengine.cost_models.dataset.dataset import Dataset, DatasetFolder
from tvm_xengine.cost_models.dataset.parquet import export_parquet, import_parquet
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.kernels.sources import AUTO, source_names
from tvm_xengine.report.costs import print_facts

_UNSTABLE_RATIO = 0.1
"""Kernels whose rounds differ by more are counted as unstable."""


def collect_kernels(dataset: Path, wanted: Collection, terminal: Terminal) -> dict[str, Any]:
    """Measure the kernels of networks into a dataset."""
    known = (AUTO, *source_names())
    if unknown := [name for name in wanted.sources if name not in known]:
        raise UsageError(f"expected kernel sources among {', '.join(known)}, got {unknown[0]!r}")
    folder = DatasetFolder(dataset)
    effort = Effort(rounds=wanted.rounds, extra_rounds=wanted.rounds)
    if wanted.rpc and len(wanted.targets) not in (1, len(wanted.rpc)):
        raise UsageError(
            f"expected one --targets for all boards, or one for each of the {len(wanted.rpc)}, got"
            f" {len(wanted.targets)}"
        )
    options = CollectOptions(
        wanted.targets, wanted.kernels, wanted.sources, effort, boards=wanted.rpc
    )
    many = variants(wanted.networks or None, wanted.seed)
    with terminal.reporting() as reporter:
        count = collect(folder, many, options, reporter.stage("collecting kernels"))
    terminal.note(f"{count} measured kernels in {folder.folder}")
    return {"kernels": count, "families": list(folder.load().all_families())}


def export_dataset(dataset: Path, path: Path, terminal: Terminal) -> dict[str, Any]:
    """Write a dataset as one Parquet file."""
    count = export_parquet(DatasetFolder(dataset), path)
    terminal.note(f"{count} kernels in {path}")
    return {"kernels": count}


def import_dataset(path: Path, dataset: Path, terminal: Terminal) -> dict[str, Any]:
    """Add the kernels of a Parquet file to a dataset."""
    folder = DatasetFolder(dataset)
    count = import_parquet(path, folder)
    total = len(folder.measured())
    terminal.note(f"{count} kernels read, {total} measured in {folder.folder}")
    return {"kernels": count, "all_kernels": total}


def inspect_dataset(path: Path, terminal: Terminal) -> dict[str, Any]:
    """Show what a dataset holds."""
    data = DatasetFolder(path).load()
    facts = {
        "kernels": len(data),
        "unstable kernels": int((data.noise_ratio > _UNSTABLE_RATIO).sum()),
        "targets": dict(Counter(data.targets)),
        "families": _family_sizes(data),
        "shortest, median, longest us": [
            float(f"{t:.4g}") for t in np.quantile(data.time_us, (0, 0.5, 1))
        ],
    }
    print_facts(terminal.console, str(path), facts)
    return facts


def _family_sizes(data: Dataset) -> dict[str, int]:
    """Number of kernels in each network family."""
    return {
        family: sum(family in names for names in data.families) for family in data.all_families()
    }
