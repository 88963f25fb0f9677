"""Features of a kernel, for models that predict its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tvm_xengine.cost_models.features.accesses import Access
from tvm_xengine.cost_models.features.added import added_values
from tvm_xengine.cost_models.features.bodies import NO_BODY, Body, bodies_of
from tvm_xengine.cost_models.features.expressions import (
    OP_CLASSES,
    Loop,
    Ops,
    no_ops,
)
from tvm_xengine.cost_models.features.hardware import Hardware, hardware_of
from tvm_xengine.cost_models.features.library_features import (
    library_cycles,
    library_features,
)
from tvm_xengine.cost_models.features.statements import Statement, statements_of
from tvm_xengine.cost_models.features.table import (
    BODY_SLOTS,
    PLAIN_SLOT,
    KernelFeatures,
)
from tvm_xengine.cost_models.features.traffic import (
    Footprint,
    Run,
    footprints,
    missed_bytes,
    runs_of,
)
from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.cost_models.measure.this_machine import this_machine
from tvm_xengine.kernels.device_kernel import DeviceKernel, TensorSpec

_ARITHMETIC = frozenset(("add", "multiply", "divide", "root", "compare", "select", "call"))
_INNER_LOOPS = 3
"""Loops that are described one by one, from the innermost."""

_CONFLICT_BYTES = 2048
"""Strides that are multiples of this, half a page, fall into few sets of a first level cache."""


@dataclass(frozen=True)
class _Lowered:
    """A kernel with what is read off its loops, for the machine it runs on."""

    kernel: DeviceKernel
    hardware: Hardware
    statements: Sequence[Statement]
    runs: Sequence[Run]
    bodies: Sequence[Body]


def kernel_features(kernel: DeviceKernel, machine: Machine | None = None) -> KernelFeatures:
    """Features of a kernel on a machine, by default this one; it is not compiled or run."""
    machine = machine or this_machine()
    hardware = hardware_of(kernel.target, machine)
    statements = statements_of(kernel.func)
    bodies = bodies_of(statements, hardware)
    runs = runs_of(statements)
    lowered = _Lowered(kernel, hardware, statements, runs, bodies)
    stages = kernel.library_stages
    called_cycles = library_cycles(kernel.library, stages, kernel.library_flops, hardware)
    work = max(1.0, sum(s.executions for s in statements) + called_cycles)
    flops = sum(s.executions * s.store.lanes * _arithmetic(s.ops) for s in statements)
    flops += kernel.library_flops
    tensors_bytes = sum(map(_tensor_bytes, (*kernel.inputs, *kernel.outputs)))
    named = _counters(lowered, work)
    named |= _kernel_part(lowered, work, flops)
    named |= library_features(kernel.library, stages, kernel.library_flops)
    total_cycles = max(1.0, called_cycles + sum(body.total_cycles for body in bodies))
    plain_cycles = sum(body.total_cycles for body in bodies if _is_plain(body))
    named["plain_share"] = plain_cycles / total_cycles
    automatic_cycles = sum(body.total_cycles for body in bodies if body.is_automatic)
    named["automatic_share"] = automatic_cycles / total_cycles
    ranked = sorted(bodies, key=lambda body: body.total_cycles, reverse=True)
    plain = next((body for body in ranked if _is_plain(body)), None)
    nothing = _no_body()
    described = [
        _body_part(body, runs, total_cycles, hardware) for body in ranked[: len(BODY_SLOTS)]
    ]
    # Where the compiler makes vectors, or does not, small changes of the loops matter most.
    if plain is None:
        slots = [nothing]
    elif plain in ranked[: len(described)]:
        slots = [described[ranked.index(plain)]]
    else:
        slots = [_body_part(plain, runs, total_cycles, hardware)]
    if kernel.library is not None:
        slots.append(_called_part(nothing, called_cycles, total_cycles))
    slots += [*described, *([nothing] * len(BODY_SLOTS))]
    names, numbers = list(named), list(named.values())
    for slot, part in zip((PLAIN_SLOT, *BODY_SLOTS), slots, strict=False):
        names += _names_in_slot(tuple(part), slot)
        numbers += part.values()
    added = added_values(kernel, machine, names)
    names += added
    numbers += added.values()
    values = np.array(numbers, dtype=np.float64)
    return KernelFeatures(tuple(names), values, work, flops, float(tensors_bytes))


@cache
def _names_in_slot(names: tuple[str, ...], slot: str) -> tuple[str, ...]:
    return tuple(f"{name}_{slot}" for name in names)


def _counters(lowered: _Lowered, work: float) -> dict[str, float]:
    """What one call asks of the machine, as logarithms."""
    kernel, runs, bodies = lowered.kernel, lowered.runs, lowered.bodies
    missed = missed_bytes(runs, lowered.hardware.caches_bytes)
    loops = {id(loop): (depth, run) for run in runs for depth, loop in enumerate(run.loops)}
    entries = sum(math.prod(p.extent for p in run.loops[:depth]) for depth, run in loops.values())

    def total(part: str) -> float:
        return float(sum(body.iterations * getattr(body, part) for body in bodies))

    return {
        "log_core_cycles": _log(total("cycles")),
        "log_work": _log(work),
        "log_loop_entries": _log(entries),
        "log_iterations": _log(sum(body.iterations for body in bodies)),
        "log_arithmetic": _log(total("arithmetic")),
        "log_loads": _log(total("loads")),
        "log_stores": _log(total("stores")),
        "log_divides": _log(total("divides")),
        "log_calls": _log(total("calls")),
        "log_integer": _log(total("integer")),
        "log_chain_cycles": _log(total("chain_cycles")),
        "log_missed_l1": _log(missed[0]),
        "log_missed_l2": _log(missed[1]),
        "log_missed_l3": _log(missed[2]),
        "tensors": float(len(kernel.inputs) + len(kernel.outputs)),
    }


def _kernel_part(lowered: _Lowered, work: float, flops: float) -> dict[str, float]:
    kernel, hardware = lowered.kernel, lowered.hardware
    statements, runs = lowered.statements, lowered.runs
    inputs_bytes = sum(map(_tensor_bytes, kernel.inputs))
    outputs_bytes = sum(map(_tensor_bytes, kernel.outputs))
    elements = sum(s.executions * s.store.lanes for s in statements)
    loads = [(load, s.executions) for s in statements for load in s.loads]
    traffic = sum(load.bytes_at_once * count for load, count in loads)
    stored = sum(s.store.bytes_at_once * s.executions for s in statements)
    launched = {id(run.loops) for run in runs if any(loop.is_parallel for loop in run.loops)}
    parallel = sum(s.executions for s in statements if id(s.loops) in launched)
    extents = [loop.extent for run in runs for loop in run.loops if loop.is_parallel]
    threads = min(hardware.cores, max(extents, default=1)) if kernel.is_parallel else 1
    total_bytes = inputs_bytes + outputs_bytes + kernel.workspace_bytes
    (whole,) = footprints(runs, (0,))
    load_count = max(1.0, sum(count for _, count in loads))
    amounts = {
        "log_elements": _log(elements),
        "log_flops": _log(flops),
        "log_inputs_bytes": _log(inputs_bytes),
        "log_outputs_bytes": _log(outputs_bytes),
        "log_workspace_bytes": _log(kernel.workspace_bytes),
        "log_loaded_bytes": _log(traffic),
        "log_stored_bytes": _log(stored),
        "log_touched_per_l1": _ratio(whole.touched_bytes, hardware.caches_bytes[0]),
        "log_touched_per_l2": _ratio(whole.touched_bytes, hardware.caches_bytes[1]),
        "log_touched_per_l3": _ratio(whole.touched_bytes, hardware.caches_bytes[2]),
        "bytes_per_work": total_bytes / work,
        "flops_per_work": flops / work,
        "flops_per_byte": _log(flops / max(1, total_bytes)),
        "reuse": _ratio(traffic + stored, max(1, total_bytes)),
        "lanes": elements / work,
        "loads_per_work": load_count / work,
        "statements": float(len(statements)),
        "nests": float(len({id(run.loops[0]) for run in runs if run.loops})),
        "depth": float(max((len(run.loops) for run in runs), default=0)),
        "parallel_share": parallel / work,
        "log_parallel_extent": _log(max(extents, default=0)),
        "threads": float(threads),
        "inputs": float(len(kernel.inputs)),
        "outputs": float(len(kernel.outputs)),
        "inplace": float(len(kernel.inplace)),
        "element_bytes": float(max((s.store.element_bytes for s in statements), default=4)),
    }
    return {**amounts, **_machine_part(hardware), **_statement_part(statements, loads, work)}


def _machine_part(hardware: Hardware) -> dict[str, float]:
    return {
        "machine_vector_bytes": float(hardware.vector_bytes),
        "machine_cores": float(hardware.cores),
        "machine_has_fma": float(hardware.has_fma),
        "log_machine_l1": _log(hardware.caches_bytes[0]),
        "log_machine_l2": _log(hardware.caches_bytes[1]),
        "log_machine_l3": _log(hardware.caches_bytes[2]),
    }


def _statement_part(
    statements: Sequence[Statement], loads: Sequence[tuple[Access, float]], work: float
) -> dict[str, float]:
    """How much of the work is which arithmetic, and in which patterns memory is touched."""
    load_count = max(1.0, sum(count for _, count in loads))
    ops: dict[str, float] = dict.fromkeys(OP_CLASSES, 0.0)
    loaded: dict[str, float] = dict.fromkeys((*_PATTERNS, _CONFLICTING), 0.0)
    written = dict(loaded)
    for s in statements:
        for name, count in s.ops.items():
            ops[name] += count * s.executions
        _count_pattern(written, s.store, s.executions)
    for load, times in loads:
        _count_pattern(loaded, load, times)
    values = {f"{name}_per_work": count / work for name, count in ops.items()}
    for name in _PATTERNS:
        values[f"loads_{name}"] = loaded[name] / load_count
        values[f"stores_{name}"] = written[name] / work
    values["loads_conflicting"] = loaded[_CONFLICTING] / load_count
    values["stores_conflicting"] = written[_CONFLICTING] / work
    return values


_PATTERNS = ("fixed", "unit", "near", "far")
_CONFLICTING = "conflicting"


def _count_pattern(counts: dict[str, float], access: Access, count: float) -> None:
    counts[_pattern(access)] += count
    if _conflicts(access):
        counts[_CONFLICTING] += count


@cache
def _no_body() -> Mapping[str, float]:
    hardware = Hardware(vector_bytes=1, cores=1, has_fma=False, caches_bytes=(1, 1, 1))
    return _body_part(NO_BODY, (), 1.0, hardware)


def _called_part(
    nothing: Mapping[str, float], cycles: float, total_cycles: float
) -> dict[str, float]:
    """The library's part of a kernel as if it were a body."""
    return {
        **nothing,
        "share": cycles / total_cycles,
        "log_iterations": _log(cycles),
        "is_called": 1.0,
    }


def _body_part(
    body: Body, runs: Sequence[Run], total_cycles: float, hardware: Hardware
) -> dict[str, float]:
    """What an innermost loop does."""
    loops = body.loops
    mine = [run for run in runs if run.loops is loops]
    depths = [len(loops) - 1 - place for place in range(_INNER_LOOPS)]
    whole, *inner = footprints(mine, [0, *(max(0, depth) for depth in depths)])
    values = {
        "share": body.total_cycles / total_cycles,
        "cycles": body.cycles,
        "log_iterations": _log(body.iterations),
        "is_called": 0.0,
        "is_automatic": float(body.is_automatic),
        **{name: float(getattr(body, name)) for name in _INSTRUCTIONS},
        **_written_part(body, hardware),
        "log_footprint": _log(whole.touched_bytes),
    }
    for place, (depth, held) in enumerate(zip(depths, inner, strict=True)):
        values |= _loop_part(body, place, depth, held)
    return values


_INSTRUCTIONS = ("arithmetic", "loads", "stores", "divides", "calls", "integer", "chain_cycles")
"""Counts of a body for one iteration."""


def _written_part(body: Body, hardware: Hardware) -> dict[str, float]:
    """The statements of a body as they are written."""
    statements, loops = body.statements, body.loops
    loads = [load for s in statements for load in s.loads]
    stores = [s.store for s in statements]
    accesses = (*loads, *stores)
    ops = _summed(s.ops for s in statements)
    innermost = loops[-1].extent if loops else 0
    return {
        "statements": float(len(statements)),
        "lanes": float(max((store.lanes for store in stores), default=0)),
        "least_lanes": float(min((store.lanes for store in stores), default=0)),
        "depth": float(len(loops)),
        "loads_written": float(len(loads)),
        "arithmetic_written": float(_arithmetic(ops)),
        "branches": float(ops["branch"]),
        "selects": float(ops["select"] + ops["compare"]),
        "gathers": float(ops["gather"]),
        "guards": float(max((s.guards for s in statements), default=0)),
        "tensors": float(len({a.tensor.number for a in accesses})),
        "unaligned": _unaligned(accesses, hardware),
        "remainder_16": float(innermost % 16),
        "remainder_4": float(innermost % 4),
        "log_unrolled": _log(innermost * (len(accesses) + _arithmetic(ops))),
        "contiguous": _contiguous(accesses, loops),
        "log_reduced": max(map(_log, map(_reduced, statements)), default=0.0),
    }


def _loop_part(body: Body, place: int, depth: int, held: Footprint) -> dict[str, float]:
    """One of the loops around a body; zeros where there are fewer."""
    exists = depth >= 0
    loads = [load for s in body.statements for load in s.loads] if exists else []
    strides = [abs(load.strides_bytes[depth]) for load in loads]
    stored = [abs(s.store.strides_bytes[depth]) for s in body.statements] if exists else []
    return {
        f"log_extent_in{place}": _log(body.loops[depth].extent) if exists else 0.0,
        f"is_parallel_in{place}": float(exists and body.loops[depth].is_parallel),
        f"log_store_stride_in{place}": _log(max(stored, default=0)),
        f"log_least_stride_in{place}": _log(min(strides, default=0)),
        f"log_greatest_stride_in{place}": _log(max(strides, default=0)),
        f"fixed_loads_in{place}": float(sum(stride == 0 for stride in strides)),
        f"log_footprint_in{place}": _log(held.touched_bytes),
        f"log_held_in{place}": _log(held.held_bytes),
    }


def _summed(each: Iterable[Ops]) -> Ops:
    """How many operations of each class together."""
    columns = zip(*(ops.values() for ops in each), strict=True)
    return {**no_ops(), **dict(zip(OP_CLASSES, map(sum, columns), strict=False))}


def _is_plain(body: Body) -> bool:
    return all(s.store.lanes == 1 for s in body.statements)


def _arithmetic(ops: Ops) -> int:
    return sum(ops[name] for name in _ARITHMETIC)


def _reduced(statement: Statement) -> float:
    strides = statement.store.strides_bytes
    return math.prod(
        loop.extent for loop, stride in zip(statement.loops, strides, strict=True) if not stride
    )


def _unaligned(accesses: Iterable[Access], hardware: Hardware) -> float:
    """Share of the moving accesses that do not keep to multiples of a vector."""
    moving = [a for a in accesses if any(a.strides_bytes)]
    crossing = [
        a
        for a in moving
        if any(
            place % hardware.vector_bytes
            for place in (a.start_bytes, *a.strides_bytes[: None if a.lanes > 1 else -1])
        )
    ]
    return len(crossing) / max(1, len(moving))


def _contiguous(accesses: Sequence[Access], loops: Sequence[Loop]) -> float:
    """Share of the accesses for which the two innermost loops could be one."""
    if len(loops) < 2:
        return 1.0
    extent = loops[-1].extent
    joined = sum(a.strides_bytes[-2] == extent * a.strides_bytes[-1] for a in accesses)
    return joined / max(1, len(accesses))


def _pattern(access: Access) -> str:
    """How an access moves in the innermost loop that moves it, or between the lanes of a vector."""
    if access.lanes > 1 and access.lane_stride:
        return "unit" if access.lane_stride == 1 else "near" if access.lane_stride < 16 else "far"
    stride = abs(access.inner_stride_bytes)
    if stride == 0:
        return "fixed"
    if stride <= access.element_bytes:
        return "unit"
    return "near" if stride < 64 else "far"


def _conflicts(access: Access) -> bool:
    """Whether the access jumps by a large power of two, so that few cache sets take it all."""
    stride = abs(access.inner_stride_bytes)
    return stride >= _CONFLICT_BYTES and stride & (stride - 1) == 0


def _tensor_bytes(spec: TensorSpec) -> int:
    digits = "".join(c for c in spec.dtype.split("x")[0] if c.isdigit())
    return math.prod(spec.shape) * max(1, int(digits or 8) // 8)


def _log(value: float) -> float:
    return math.log2(1.0 + max(0.0, value))


def _ratio(value: float, reference: float) -> float:
    return math.log2(max(value, 1.0) / reference)
