"""A training step as kernel calls, and the hash by which plans know it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tvm_xengine.compiler.lean.slices import cut_step
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.prepared import PreparedKernels
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.model.training import Training
from tvm_xengine.passes.slices.batch import batch_extent
from tvm_xengine.relax_ir.kernel_attributes import kernel_hash
from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import OpCost, Problem, problem_to_json
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES


@dataclass(frozen=True)
class Lowered:
    """A training step as kernel calls for the devices of a platform.

    Attributes
    ----------
    training
        What was lowered.
    step
        The module of kernel calls, and its graph.
    stores
        Where measurements and compiled kernels are kept.
    reporter
        Is told of progress.
    """

    training: Training
    step: LoweredStep
    stores: Stores = field(repr=False)
    reporter: Reporter = field(repr=False)

    @property
    def platform(self) -> Platform:
        """The devices it was lowered for."""
        return self.step.platform

    @property
    def fingerprint(self) -> str:
        """A hash of the graph, its kernels and the devices; equal steps have equal fingerprints."""
        return self.fingerprint_of(self.step.extraction.graph, self.platform)

    def in_slices(self, slices: int) -> Lowered | None:
        """The same step in equal slices of its batch; None where it cannot be divided so."""
        size = batch_extent(self.step.mod[self.step.func_name])
        return None if size % slices else self.with_cut(BatchCut.equal(size, slices))

    def with_cut(self, cut: BatchCut | None) -> Lowered | None:
        """The same step on a batch that is cut; None where no call can be divided so."""
        if cut is None or len(cut.samples) == 1:
            return self
        step = cut_step(self.step, cut, PreparedKernels(self.platform, self.stores.tuned))
        return None if step is None else replace(self, step=step)

    def fingerprint_of(self, graph: OpGraph, platform: Platform) -> str:
        """The hash with another graph and other devices for the same kernels."""
        mod, kernels = self.step.mod, self.step.extraction.kernels
        hashes = {name: kernel_hash(mod[name]) for name in sorted(set(kernels.values()))}
        return _fingerprint(
            Problem(graph, _unlimited(platform), _no_costs(graph, platform)), hashes
        )


def _fingerprint(problem: Problem, kernels: Mapping[str, str]) -> str:
    document = {**json.loads(problem_to_json(problem)), "kernels": kernels}
    del document["costs"], document["links"]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _unlimited(platform: Platform) -> Platform:
    links = tuple(replace(link, latency_us=0.0, bandwidth_gb_s=1.0) for link in platform.links)
    budgets = {device.name: UNLIMITED_BYTES for device in platform.devices}
    return replace(platform.with_budgets(budgets), links=links, handover_us=None, start_us=None)


def _no_costs(graph: OpGraph, platform: Platform) -> dict[str, dict[str, OpCost]]:
    devices = [device.name for device in platform.computing]
    return {op.name: dict.fromkeys(devices, OpCost(1.0)) for op in graph.ops}
