"""Runs whose operands lie in slow memory: read there, or copied tile by tile while others are used."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.aot.plan.kernels import TargetKernels
from tvm_xengine.aot.plan.region_problem import Machine, static_op_costs
from tvm_xengine.aot.plan.regions import FLASH, copy_link
from tvm_xengine.aot.plan.static_cost import ACCESS_BYTES, static_us
from tvm_xengine.aot.plan.tiles import (
    Cut,
    TiledFunction,
    TiledKernel,
    tiled_kernel,
)
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.kernels.buffers import buffer_roots
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.operation_count import runs_of_stores
from tvm_xengine.kernels.targets import vector_bytes
from tvm_xengine.program.step_program import ArenaView, Operand, Outside, OutsideView
from tvm_xengine.scheduling.graph import Op
from tvm_xengine.scheduling.platform import Link
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.sizes import round_up

Regions = tuple[str, ...]
"""For each operand of a kernel the slow region where it lies; empty for the others."""

_TILES = (2, 4, 8, 16, 32, 64)
"""Numbers of tiles that are tried; with more, the latency of each copy outweighs what buffers save."""
_MOST_SHARE = 0.5
"""Share of the first region that buffers may take: what a kernel reads and makes there needs the rest."""
_LEAN_RATIO = 1.1
"""Fewer bytes are offered, too, where a run takes at most a tenth longer with them."""


def with_tiles(
    step: LoweredStep, machine: Machine, fixed: Mapping[str, Operand], prepared: TargetKernels
) -> LoweredStep:
    """The step whose runs may also take tiles of what lies in slow memory, where DMA copies."""
    if not machine.has_dma:
        return step
    first = machine.first
    made: dict[str, dict[str, DeviceKernel]] = {}
    known: set[tuple[str, Regions]] = set()
    for op in step.extraction.graph.ops:
        name, regions = step.extraction.kernels[op.name], slow_regions(op, machine, fixed)
        if not any(regions) or (name, regions) in known or not _has_channels(regions, machine):
            continue
        known.add((name, regions))
        found = made.setdefault(name, {})
        for kernel in _best_tiles(step.mod[name], name, regions, machine, prepared):
            found[f"tiles{kernel.tiles}" + f"_{len(known)}" * (f"tiles{kernel.tiles}" in found)] = (
                kernel
            )
    variants = dict(step.variants)
    for name, found in made.items():
        variants[name, first] = {**variants.get((name, first), {}), **found}
    return replace(step, variants=variants)


def _has_channels(regions: Regions, machine: Machine) -> bool:
    """Whether something else than the processor makes the copies."""
    pairs = [(region, machine.first) for region in regions if region]
    streams = {pair: machine.platform.copy_stream(*pair) for pair in pairs}
    return all(pair == stream for pair, stream in streams.items())


def state_in_place(
    step: LoweredStep, machine: Machine, copied: Problem, prepared: TargetKernels
) -> dict[str, ArenaView]:
    """State that need not be copied whole, with places behind one another in its slow region.

    It is what products read, and update if they do, in tiles.

    Parameters
    ----------
    copied
        The problem in which state is copied to the first region whole.
    """
    graph, at = copied.graph, 0
    places: dict[str, ArenaView] = {}
    if not machine.has_dma:
        return places
    for tensor in graph.bases:
        region = copied.home.get(tensor.name, machine.first)
        if tensor.role not in machine.state_roles or region not in machine.bandwidth_gb_s:
            continue
        there = {tensor.name: ArenaView(region, at, tensor.shape, tensor.dtype)}
        readers = [op for op in graph.ops if tensor.name in graph.reads[op.name]]
        if readers and all(_runs_in_tiles(step, op, there, machine, prepared) for op in readers):
            places |= there
            at += round_up(tensor.size_bytes, machine.platform.alignment_bytes)
    return places


def _runs_in_tiles(
    step: LoweredStep,
    op: Op,
    fixed: Mapping[str, Operand],
    machine: Machine,
    prepared: TargetKernels,
) -> bool:
    regions, name = slow_regions(op, machine, fixed), step.extraction.kernels[op.name]
    if not any(regions) or not _has_channels(regions, machine):
        return False
    return bool(_best_cuts(step.mod[name], name, regions, machine, prepared))


def end_of(places: Mapping[str, ArenaView], alignment_bytes: int) -> int:
    """Where the last of them ends."""
    return max(round_up(place.end_bytes, alignment_bytes) for place in places.values())


def slow_regions(op: Op, machine: Machine, fixed: Mapping[str, Operand]) -> Regions:
    """Where the operands of an op lie, as far as this is slow."""
    return tuple(_slow_region(fixed.get(name), machine) for name in _in_memory(op))


def _in_memory(op: Op) -> Iterator[str]:
    """For each operand the tensor in whose bytes it lies."""
    state_of = dict(op.updates)
    yield from op.inputs
    yield from (state_of.get(name, name) for name in op.outputs)


def _slow_region(place: Operand | None, machine: Machine) -> str:
    match place:
        case ArenaView(device) if device in machine.bandwidth_gb_s and device != machine.first:
            return device
        case OutsideView(Outside.CONSTANT) if FLASH in machine.bandwidth_gb_s:
            return FLASH
        case _:
            return ""


def _best_tiles(
    func: tirx.PrimFunc,
    name: str,
    regions: Regions,
    machine: Machine,
    prepared: TargetKernels,
) -> Sequence[TiledKernel]:
    """The fastest kernel in tiles, and one with smaller buffers that is hardly slower."""
    cuts = _best_cuts(func, name, regions, machine, prepared)
    made = (_in_tiles(c, regions, machine, prepared.prepare(c.tile, name=name)) for c in cuts)
    return [kernel for kernel in made if kernel is not None]


def _in_tiles(
    function: TiledFunction, regions: Regions, machine: Machine, tile: DeviceKernel
) -> TiledKernel | None:
    align = machine.platform.alignment_bytes
    return tiled_kernel(function, regions, machine.first, align, tile)


def _best_cuts(
    func: tirx.PrimFunc,
    name: str,
    regions: Regions,
    machine: Machine,
    prepared: TargetKernels,
) -> Sequence[TiledFunction]:
    """What these kernels compute; their tiles are not prepared, which takes long."""
    most_bytes = _MOST_SHARE * machine.platform.device(machine.first).budget_bytes
    whole = prepared.prepare(func, name=name)
    whole_us = static_us(whole, machine.target, None)
    found: list[tuple[float, int, TiledFunction]] = []
    for dimension in range(max(len(param.ty.shape) for param in func.params)):
        for tiles in _TILES:
            function = prepared.cut_results(func, dimension, tiles)
            # With the kernel of the whole, what counts is known nearly as well.
            draft = None if function is None else _in_tiles(function, regions, machine, whole)
            if function is None or draft is None or not _is_in_vectors(draft):
                continue
            if draft.workspace_bytes <= most_bytes:
                us = tiles_us(draft, machine, whole_us / tiles)
                found.append((us, draft.workspace_bytes, function))
    if not found:
        return ()
    fastest = min(found, key=lambda one: one[:2])
    near = [one for one in found if one[0] <= _LEAN_RATIO * fastest[0]]
    chosen = {id(one): one for one in (fastest, min(near, key=lambda one: one[1]))}
    return [function for _, _, function in chosen.values()]


def _is_in_vectors(kernel: TiledKernel) -> bool:
    """Whether the vectors of the target compute the elements of a tile as they do those of the whole."""
    width_bytes = vector_bytes(kernel.target)
    if width_bytes == ACCESS_BYTES:
        return True
    return all(cut is None or cut.chunk_bytes % width_bytes == 0 for cut in kernel.cuts)


def slow_op_costs(
    step: LoweredStep, machine: Machine, fixed: Mapping[str, Operand]
) -> dict[str, dict[str, OpCost]]:
    """Costs of the ops of a step, with the time that operands in slow memory take."""
    costs = static_op_costs(step, machine)
    kernels = step.extraction.kernels
    for op in step.extraction.graph.ops:
        regions = slow_regions(op, machine, fixed)
        for device, cost in costs[op.name].items():
            named = step.variants.get((kernels[op.name], device), {})
            of = {"": step.kernels[kernels[op.name], device], **named}
            changed = {
                name: _slow_cost(one, of[name], regions, machine)
                for name, one in cost.kernels.items()
                if getattr(of[name], "regions", regions) == regions
            }
            costs[op.name][device] = replace(changed.pop(""), variants=changed)
    return costs


def _slow_cost(cost: OpCost, kernel: DeviceKernel, regions: Regions, machine: Machine) -> OpCost:
    plain = replace(cost, variants={})
    if isinstance(kernel, TiledKernel):
        workspace = round_up(kernel.workspace_bytes, machine.platform.alignment_bytes)
        return replace(plain, compute_us=tiles_us(kernel, machine), workspace_bytes=workspace)
    return replace(plain, compute_us=cost.compute_us + in_place_us(kernel, regions, machine))


def in_place_us(kernel: DeviceKernel, regions: Regions, machine: Machine) -> float:
    """Time that accesses of operands in slow memory take on top."""
    if not any(regions):
        return 0.0
    total = 0.0
    for accesses, region in zip(_accesses(kernel), regions, strict=True):
        if region:
            total += ACCESS_BYTES * accesses / (1000.0 * machine.bandwidth_gb_s[region])
    return total


def tiles_us(kernel: TiledKernel, machine: Machine, tile_us: float | None = None) -> float:
    """The longer of computing and copying for each tile, and the first and the last copy.

    Parameters
    ----------
    tile_us
        Of computing one tile; None counts the operations of its kernel.
    """
    moved = [cut for cut in kernel.cuts if cut and not cut.region and cut.offset_bytes is not None]
    # A word is loaded and stored; a call for each chunk is not counted.
    copied_words = 2 * sum(cut.tile_bytes for cut in moved) / ACCESS_BYTES
    _, other_cycles = machine.target.cycles
    compute_us = static_us(kernel.tile, machine.target, None) if tile_us is None else tile_us
    compute_us += other_cycles * copied_words / machine.target.clock_mhz
    loads = _copies_us(kernel, machine, out=False)
    stores = _copies_us(kernel, machine, out=True)
    return kernel.tiles * max(compute_us, loads, stores) + loads + stores


def _copies_us(kernel: TiledKernel, machine: Machine, *, out: bool) -> float:
    """Of the channel that copies longest for one tile."""
    us: dict[str, float] = {}
    for _, cut in kernel.copied(out=out):
        us[cut.region] = us.get(cut.region, 0.0) + _copy_us(cut, machine, out=out)
    return max(us.values(), default=0.0)


def _copy_us(cut: Cut, machine: Machine, *, out: bool) -> float:
    pair = (machine.first, cut.region) if out else (cut.region, machine.first)
    return cut.chunks * _link(*pair, machine).transfer_us(cut.chunk_bytes)


def _link(src: str, dst: str, machine: Machine) -> Link:
    known = machine.platform.link_between.get((src, dst))
    return known or copy_link(src, dst, machine.bandwidth_gb_s[FLASH])


def _accesses(kernel: DeviceKernel) -> list[float]:
    """How often one run loads or stores an element of each operand, each at least once."""
    roots = buffer_roots(kernel.func)
    total = dict.fromkeys(kernel.func.params, 0.0)
    for store, runs in runs_of_stores(kernel):
        loads: list[ir.TensorLoad] = []
        tvm_ffi.structural_walk(store, (ir.TensorLoad, loads.append))
        for buffer in (*(load.source for load in loads), getattr(store, "buffer", None)):
            if (root := roots.get(buffer)) in total:
                total[root] += runs
    specs = (*kernel.inputs, *kernel.outputs)
    # Loops whose extent is no number count once; what is not read at all is counted, too.
    counted = zip(total.values(), specs, strict=False)
    return [max(accesses, math.prod(spec.shape)) for accesses, spec in counted]
