"""Kernels that need less workspace, which runs may take where a budget has no room for the fastest ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.kernel_choice import (
    KernelKey,
    generated_kernels,
    kernels_with_choice,
)
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.solvers.working_set import working_sets

if TYPE_CHECKING:
    from tvm_xengine.kernels.store.kernel_store import OnProgress
    from tvm_xengine.kernels.store.tuned import TunedSchedules


_TRIFLE_RATIO = 0.01
"""Less workspace than this share of the largest op's bytes is no reason for a slower kernel."""
KERNEL_S = 0.05
"""To make a kernel that this process has not made before: ResNet-8 has 24 for 1.2 s."""


def with_needed_variants(costed: CostedStep, stores: Stores, reporter: Reporter) -> CostedStep:
    """The step with variants for each op that alone exceeds the budget of a device."""
    beyond = {
        (costed.lowered.extraction.kernels[op], device)
        for op, need in working_sets(costed.problem).op_bytes.items()
        for device, size in need.items()
        if size > costed.problem.platform.device(device).budget_bytes
    }
    return with_variants(costed, stores, reporter, only=beyond)


def with_variants(
    costed: CostedStep,
    stores: Stores,
    reporter: Reporter,
    only: Collection[KernelKey] | None = None,
) -> CostedStep:
    """The step each run of which may also take a kernel, of a library or generated, with less workspace.

    Only on devices that leave the choice, and of `only` these kernels if they are given, by default those
    whose workspace matters. It is `costed` itself where no other kernel needs less.
    """
    step = costed.lowered
    only = _with_much_workspace(costed) if only is None else only
    variants = {
        key: {
            kernel.source: kernel
            for kernel in others
            if kernel.workspace_bytes < step.kernels[key].workspace_bytes
        }
        for key, others in _others(step, costed.offered.kernels, stores.tuned, only).items()
    }
    variants = {key: named for key, named in variants.items() if named}
    if not variants:
        return costed
    return costed.with_kernels(replace(step, variants=variants), stores, _Quiet(reporter))


def may_take_variants(costed: CostedStep) -> bool:
    """Whether runs of some kernel may take another one, whose workspace is less by much."""
    return variants_s(costed) > 0


def variants_s(costed: CostedStep) -> float:
    """Processor time to make these kernels (:func:`with_variants`)."""
    much = _with_much_workspace(costed)
    return KERNEL_S * sum(key in much for key in kernels_with_choice(costed.lowered))


def _with_much_workspace(costed: CostedStep) -> Collection[KernelKey]:
    """The kernels whose workspace is more than a trifle beside the largest op of their device."""
    most_bytes: dict[str, int] = {}
    for need in working_sets(costed.problem).op_bytes.values():
        for device, size in need.items():
            most_bytes[device] = max(size, most_bytes.get(device, 0))
    return {
        key
        for key, kernel in costed.lowered.kernels.items()
        if kernel.workspace_bytes > _TRIFLE_RATIO * most_bytes.get(key[1], 0)
    }


def with_saved_variants(
    step: LoweredStep,
    offered: Mapping[KernelKey, DeviceKernel],
    sources: Collection[str],
    tuned: TunedSchedules | None,
) -> LoweredStep:
    """The step with the variants that a plan file names (:func:`variant_label`)."""
    only = {
        key for key in step.kernels if any(s.startswith(variant_label(*key, "")) for s in sources)
    }
    variants = {
        key: {k.source: k for k in others if variant_label(*key, k.source) in sources}
        for key, others in _others(step, offered, tuned, only).items()
    }
    return replace(step, variants=variants)


def variant_label(name: str, device: str, variant: str) -> str:
    """What a plan file calls the variant of a kernel."""
    return f"{name}@{device} with {variant}"


def _others(
    step: LoweredStep,
    offered: Mapping[KernelKey, DeviceKernel],
    tuned: TunedSchedules | None,
    only: Collection[KernelKey] | None,
) -> Mapping[KernelKey, tuple[DeviceKernel, ...]]:
    """For each kernel of the step the others that could run in its place."""
    return {
        key: tuple(
            kernel
            for kernel in (offered[key], generated)
            if kernel.symbol != step.kernels[key].symbol
        )
        for key, generated in generated_kernels(step, offered, tuned, only).items()
    }


class _Quiet(Reporter):
    """Shows progress but no notes: those of the first kernels say it all."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def stage(self, title: str) -> OnProgress:
        return self._reporter.stage(title)

    def status(self, text: str) -> None:
        self._reporter.status(text)
