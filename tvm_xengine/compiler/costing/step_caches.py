"""How a step leaves the caches for each of its kernels."""

from __future__ import annotations

from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.cost_models.measure.caches import COLD, MEMORY
from tvm_xengine.cost_models.measure.this_machine import last_cache_bytes
from tvm_xengine.planning.keep_all import kept_bytes

_FITTING_SHARE = 0.5
"""Of the last level, which a step may take: a kernel of a step of 0.4 of it (12 MiB) finds its tensors there,
of 0.6 to 0.7 (19 and 22 MiB) half of them, and of 1 (31 MiB) hardly any."""


def step_caches(step: LoweredStep) -> str:
    """The state of this machine's caches in which kernels of a step are timed."""
    fits = kept_bytes(step.extraction.graph) <= _FITTING_SHARE * last_cache_bytes()
    return COLD if fits else MEMORY
