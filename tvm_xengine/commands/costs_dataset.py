"""The verbs of ``tvm-xengine costs`` that make, renew and move datasets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tvm_xengine.commands.costs_options import CostsRequest
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.cost_models.corpus.variants import variants
from tvm_xengine.cost_models.dataset.collect import CollectOptions, collect
from tvm_xengine.cost_models.dataset.dataset import Dataset, DatasetFolder
from tvm_xengine.cost_models.dataset.parquet import export_parquet, import_parquet
from tvm_xengine.cost_models.dataset.sources import refresh_features
from tvm_xengine.cost_models.features.table import FEATURE_SET
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.report.costs import print_facts


def collect_kernels(request: CostsRequest, console: Console) -> dict[str, Any]:
    """Measure the kernels of networks into a dataset."""
    folder = DatasetFolder(dataset_path(request))
    effort = Effort(rounds=request.rounds, extra_rounds=request.rounds)
    options = CollectOptions(request.targets, request.kernels, request.sources, effort)
    with show_progress(console) as reporter:
        many = variants(request.networks or None, request.seed)
        count = collect(folder, many, options, reporter.stage("collecting kernels"))
    console.print(f"{count} measured kernels in {folder.folder}")
    return {"kernels": count, "families": list(folder.load().all_families())}


def refresh_dataset(request: CostsRequest, console: Console) -> dict[str, Any]:
    """Read the features of this version off the kernels that the dataset kept."""
    folder = DatasetFolder(dataset_path(request))
    with show_progress(console) as reporter:
        renewed, missing = refresh_features(folder, reporter.stage("reading features"))
    if missing:
        raise InvalidDatasetError(
            f"{folder.folder}: {renewed} kernels have features {FEATURE_SET} now; {missing} were"
            " collected without their source or machine"
        )
    console.print(f"{renewed} kernels have features {FEATURE_SET} now")
    return {"renewed": renewed, "feature_set": FEATURE_SET}


def export_dataset(request: CostsRequest, console: Console) -> dict[str, Any]:
    """Write a dataset as one Parquet file."""
    path = request.output
    assert path is not None  # the parser requires it
    count = export_parquet(DatasetFolder(dataset_path(request)), path)
    console.print(f"{count} kernels in {path}")
    return {"kernels": count}


def import_dataset(request: CostsRequest, console: Console) -> dict[str, Any]:
    """Add the kernels of a Parquet file to a dataset."""
    folder = DatasetFolder(dataset_path(request))
    count = import_parquet(Path(request.subject), folder)
    console.print(f"{count} kernels read, {len(folder.measured())} measured in {folder.folder}")
    return {"kernels": count, "all_kernels": len(folder.measured())}


def inspect_dataset(path: Path, console: Console) -> dict[str, Any]:
    """What a dataset holds."""
    data = DatasetFolder(path).load()
    facts = {
        "kernels": len(data),
        "unstable kernels": int((data.noise_ratio > 0.1).sum()),
        "targets": dict(Counter(data.targets)),
        "families": family_sizes(data),
        "shortest, median, longest us": [
            float(f"{t:.4g}") for t in np.quantile(data.time_us, (0, 0.5, 1))
        ],
    }
    print_facts(console, str(path), facts)
    return facts


def family_sizes(data: Dataset) -> dict[str, int]:
    """How many kernels occur in each network family."""
    return {
        family: sum(family in names for names in data.families) for family in data.all_families()
    }


def dataset_path(request: CostsRequest) -> Path:
    """The folder that the request names."""
    assert request.dataset is not None  # the parser requires it
    return request.dataset
