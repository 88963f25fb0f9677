from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cost_models.synthetic import synthetic
from tvm_xengine.commands.arguments.names import QUANTITY_NAMES, SPLIT_NAMES
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.dataset.quantities import (
    ALIGNMENT_BYTES,
    QUANTITIES,
    energy_of_kernels,
    memory_of_calls,
)
from tvm_xengine.cost_models.judging.evaluate import SPLITS, evaluate, hold_out
from tvm_xengine.cost_models.labels.held_out import open_part
from tvm_xengine.cost_models.labels.label_file import read_labels
from tvm_xengine.cost_models.labels.shipped import SHIPPED_LABELS
from tvm_xengine.cost_models.labels.unpack import unpack
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees
from tvm_xengine.cost_models.prediction.call_memory import CallMemory
from tvm_xengine.errors import InvalidDatasetError

QUICK = BoostedTrees(members=1, trees=80, learning_rate=0.2, depth=5)


def test_the_command_knows_every_quantity_and_split():
    assert set(QUANTITY_NAMES) == set(QUANTITIES)
    assert set(SPLIT_NAMES) == set(SPLITS)


def test_energy_is_learned_where_it_was_measured():
    data = synthetic(600)
    # Wide vectors draw more.
    drawn_uj = data.time_us * (1 + 0.1 * data.table.column("lanes"))
    data = replace(data, energy_uj=np.where(np.arange(600) % 2, drawn_uj, 0.0))
    part = energy_of_kernels(data)
    assert len(part) == 300
    assert evaluate(QUICK, part, "family").median_error_ratio < 0.15


def test_memory_is_learned_from_the_call_alone():
    data = synthetic(600)
    names = (
        *("log_library_flops", "library_threads"),
        *("log_workspace_bytes", "log_library_stage_bytes"),
    )
    rng = np.random.default_rng(0)
    threads = rng.choice((1.0, 2.0, 4.0), 600)
    needed = np.round(0.5 * threads * data.table.moved_bytes)
    known = np.log2(needed)
    values = np.stack([rng.uniform(5, 20, 600), threads, known, known], axis=1)
    data = replace(
        data,
        table=replace(data.table, names=names, values=values),
        workspace_bytes=needed,
        sources=tuple("onednn" if row % 3 else "tir" for row in range(600)),
    )
    part = memory_of_calls(data)
    assert len(part) == 400
    assert part.table.names == names[:2]
    np.testing.assert_array_equal(part.time_us, ALIGNMENT_BYTES + part.workspace_bytes)
    assert evaluate(QUICK, part, "family").median_error_ratio < 0.05


@pytest.mark.parametrize("split", ["random", "family"])
def test_the_bound_of_memory_holds_on_calls_that_were_not_learned_from(split):
    """Calls that copy some of their tensors, with padding, and need a little beside them."""
    rng = np.random.default_rng(1)
    data = synthetic(600)
    elements = rng.integers(100, 100_000, (600, 3))
    copied = elements * (rng.random((600, 3)) < 0.9) * 4
    beside = rng.exponential(2000, 600)
    data = replace(
        data,
        table=replace(
            data.table,
            names=tuple(f"log_library_size{k}" for k in range(3)),
            values=np.log2(1.0 + elements),
        ),
        workspace_bytes=copied.sum(axis=1) * rng.uniform(1, 1.2, 600) + beside,
        sources=("onednn",) * 600,
    )
    found = hold_out(CallMemory(), memory_of_calls(data), split)
    assert np.mean(found.data.time_us <= found.predicted.hi_us) >= 0.93
    assert (found.predicted.hi_us <= 1.25 * 4 * elements.sum(axis=1).max() + 20_000).all()


@pytest.mark.slow
def test_memory_of_shipped_calls_is_bounded_and_mostly_known(tmp_path):
    folder = DatasetFolder(tmp_path)
    unpack(read_labels(SHIPPED_LABELS), folder)
    data = memory_of_calls(open_part(folder.load()))
    found = hold_out(CallMemory(), data, "family")
    assert found.metrics().median_error_ratio <= 0.10
    assert np.mean(found.data.time_us <= found.predicted.hi_us) >= 0.95


def test_what_nobody_measured_is_not_learned():
    with pytest.raises(InvalidDatasetError, match="energy_uj > 0"):
        energy_of_kernels(synthetic(10))
    with pytest.raises(InvalidDatasetError, match="--sources onednn"):
        memory_of_calls(synthetic(10))
