"""A step that runs slice by slice of its batch, where a budget has no room for all of it at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tvm_xengine.compiler.costing.costed import CostedStep, cost_step
from tvm_xengine.compiler.lower import KernelPreparation, LoweredStep
from tvm_xengine.compiler.prepared import PreparedKernels
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.passes.slices.batch import batch_extent
from tvm_xengine.passes.slices.bucket_sums import bucket_sums
from tvm_xengine.passes.slices.slice_batch import slice_batch
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.scheduling.constraints import Constraints
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut
from tvm_xengine.scheduling.schedule import Schedule

_MOST_OPS = 3000
"""Graphs of more ops are not made: to plan them takes longer than a user waits for an answer."""


def slicings(step: LoweredStep) -> Iterator[int]:
    """Numbers of slices that are worth a try: divisors of the batch, each at least twice the last.

    There are none where several processes hold the devices.
    """
    if step.ranks is not None:
        return
    batch = batch_extent(step.mod[step.func_name])
    last = 1
    for parts in range(2, batch + 1):
        if batch % parts == 0 and parts >= 2 * last:
            if parts * len(step.extraction.graph.ops) > _MOST_OPS:
                return
            last = parts
            yield parts


def costed_in_slices(
    costed: CostedStep, parts: int, stores: Stores, reporter: Reporter
) -> CostedStep | None:
    """The costed step in slices, under the same budgets; None where nothing can be divided."""
    cut = BatchCut.equal(batch_extent(costed.offered.mod[costed.offered.func_name]), parts)
    return None if cut is None else costed_in_cut(costed, cut, stores, reporter)


def costed_in_cut(
    costed: CostedStep, cut: BatchCut, stores: Stores, reporter: Reporter
) -> CostedStep | None:
    """The costed step on a batch that is cut, under the same budgets; None where nothing can be divided."""
    prepared = PreparedKernels(costed.lowered.platform, stores.tuned)
    sliced = cut_step(costed.offered, cut, prepared)
    if sliced is None:
        return None
    made = cost_step(sliced, costed.choice, stores, reporter)
    return replace(made, problem=made.problem.asked_as(costed.problem))


def costed_in_shares(
    costed: CostedStep, cut: BatchCut, stores: Stores, reporter: Reporter
) -> CostedStep:
    """The costed step on a batch that is cut in shares.

    Raises
    ------
    UnsupportedModelError
        If no call of the step can be divided.
    """
    made = costed_in_cut(costed, cut, stores, reporter)
    if made is None:
        raise UnsupportedModelError(
            "no call of the step can be divided along the batch, so replicas cannot share it"
        )
    return made


def in_slices(step: LoweredStep, parts: int, prepared: KernelPreparation) -> LoweredStep | None:
    """The step in equal slices of its batch; None where no call can be divided so."""
    cut = BatchCut.equal(batch_extent(step.mod[step.func_name]), parts)
    return None if cut is None else cut_step(step, cut, prepared)


def cut_step(step: LoweredStep, cut: BatchCut, prepared: KernelPreparation) -> LoweredStep | None:
    """The step with its kernel calls divided along the batch (:func:`slice_batch`).

    What holds for an op holds for each of its slices. It is None where no call can be divided.

    Parameters
    ----------
    prepared
        Makes the kernels of slices; those of whole calls stay.
    """
    name = step.func_name
    func = step.mod[name]
    mod = step.mod.clone()
    mod[name] = replace(StepSignature.read(func), results=tuple(step.results)).write(func)
    sliced = slice_batch(mod, name, cut)
    if sliced is None:
        return None
    if cut.bucket_bytes:
        sliced = bucket_sums(sliced, name, cut.bucket_bytes)
    extraction = extract_graph(sliced.mod, name, alignment_bytes=step.platform.alignment_bytes)
    kernels = {
        (kernel, device.name): step.kernels[kernel, device.name]
        if (kernel, device.name) in step.kernels
        else prepared.prepare(sliced.mod[kernel], device.name, kernel)
        for device in step.platform.computing
        for kernel in dict.fromkeys(extraction.kernels.values())
    }
    return replace(
        step,
        mod=sliced.mod,
        extraction=extraction,
        kernels=kernels,
        variants={},
        constraints=_of_slices(step.constraints, sliced.calls),
        cut=cut,
        share_of={
            name: share
            for name, share in sliced.share_of.items()
            if name in extraction.graph.op or name in extraction.graph.tensor
        },
        inputs_in_slices=sliced.inputs,
    )


def form_running(schedule: Schedule, step: LoweredStep, prepared: KernelPreparation) -> LoweredStep:
    """The step in the number of slices in which it has the ops that a schedule runs; whole else."""
    ops = set(schedule.computed)
    if ops <= step.extraction.graph.op.keys():
        return step
    for parts in slicings(step):
        sliced = in_slices(step, parts, prepared)
        if sliced is not None and ops <= sliced.extraction.graph.op.keys():
            return sliced
    return step


def _of_slices(constraints: Constraints, calls: Mapping[str, tuple[str, ...]]) -> Constraints:
    return Constraints(
        {run: device for op, device in constraints.pinned.items() for run in calls[op]},
        frozenset(run for op in constraints.kept for run in calls[op]),
    )
