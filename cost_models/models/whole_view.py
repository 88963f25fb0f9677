"""Features of a kernel as a whole, relative to its work.

Trees predict a constant beyond what they have learned from. From totals they learn that few
executions on many bytes make a copy, and then take every larger convolution for one; from totals
per execution they do not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.cost_models.features.table import (
    BODY_SLOTS,
    PLAIN_SLOT,
    FeatureTable,
)
from tvm_xengine.cost_models.models.threads import most_threads, on_one_thread

_TOTALS = (
    *("log_core_cycles", "log_loop_entries", "log_iterations", "log_arithmetic", "log_loads"),
    *("log_stores", "log_divides", "log_calls", "log_integer", "log_chain_cycles"),
    *("log_missed_l1", "log_missed_l2", "log_missed_l3", "log_elements", "log_flops"),
    *("log_inputs_bytes", "log_outputs_bytes", "log_workspace_bytes"),
    *("log_loaded_bytes", "log_stored_bytes", "log_library_stage_bytes"),
    *("log_library_stage_copied_blk", "log_library_stage_copied_uni"),
    "log_library_stage_copied_other",
)
_WORK = "log_work"

_SLOTS = 2
"""Single bodies that are part of the whole; lesser ones say little of it."""

_LONG_LOG_WORK = 18.0
"""Executions, as a logarithm to base 2, beyond which what a call costs once matters no more."""

_NO_ITERATIONS = -40.0
"""Stands for the logarithm of no iterations per work: below every real one."""


def whole_view(table: FeatureTable) -> NDArray[np.float64]:
    """Features of whole kernels, (rows, features): totals are per execution, as logarithms."""
    lesser = BODY_SLOTS[_SLOTS:]
    kept = [
        number for number, name in enumerate(table.names) if name.rpartition("_")[2] not in lesser
    ]
    at = {table.names[number]: column for column, number in enumerate(kept)}
    values = table.values[:, kept]
    if _WORK not in at:
        return values
    log_work = values[:, at[_WORK]].copy()
    for name in _TOTALS:
        if name in at:
            values[:, at[name]] -= log_work
    for slot in (PLAIN_SLOT, *BODY_SLOTS[:_SLOTS]):
        column = at.get(f"log_iterations_{slot}")
        if column is not None:
            iterations = values[:, column]
            values[:, column] = np.where(iterations > 0, iterations - log_work, _NO_ITERATIONS)
    values[:, at[_WORK]] = np.minimum(log_work, _LONG_LOG_WORK)
    return values


def corrected_view(table: FeatureTable) -> NDArray[np.float64]:
    """The features that corrections are learned from: as on one thread, as the labels are."""
    return whole_view(on_one_thread(table) if most_threads(table) > 1 else table)
