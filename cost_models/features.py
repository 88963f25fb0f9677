"""Numbers that say what a kernel does, for models that predict how long it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tvm_xengine.codegen.device_kernel import DeviceKernel, TensorSpec
from tvm_xengine.cost_models.feature_table import KernelFeatures
from tvm_xengine.cost_models.machine import Machine, machine_of
from tvm_xengine.cost_models.statements import OP_CLASSES, Access, Statement, statements_of
from tvm_xengine.cost_models.traffic import footprints_bytes, missed_bytes

_DOMINANT_STATEMENTS = 2
_INNER_LOOPS = 3
_CONFLICT_BYTES = 2048


def kernel_features(kernel: DeviceKernel) -> KernelFeatures:
    """Features of a kernel prepared for a target on this machine; it is not compiled or run."""
    machine = machine_of(kernel.target)
    statements = statements_of(kernel.func)
    work = max(1.0, sum(s.executions for s in statements))
    flops = sum(_elements(s) * _arithmetic(s) for s in statements)
    tensors_bytes = sum(map(_tensor_bytes, (*kernel.inputs, *kernel.outputs)))
    named = _kernel_part(kernel, statements, machine, work, flops)
    ranked = sorted(statements, key=_weight, reverse=True)
    for rank in range(_DOMINANT_STATEMENTS):
        statement = ranked[rank] if rank < len(ranked) else None
        named |= {f"{key}_{rank}": value for key, value in _statement_part(statement).items()}
    values = np.array(list(named.values()), dtype=np.float64)
    return KernelFeatures(tuple(named), values, work, flops, float(tensors_bytes))


def _kernel_part(
    kernel: DeviceKernel,
    statements: Sequence[Statement],
    machine: Machine,
    work: float,
    flops: float,
) -> dict[str, float]:
    inputs_bytes = sum(map(_tensor_bytes, kernel.inputs))
    outputs_bytes = sum(map(_tensor_bytes, kernel.outputs))
    elements = sum(map(_elements, statements))
    loads = [(load, s.executions) for s in statements for load in s.loads]
    traffic = sum(load.bytes_at_once * count for load, count in loads)
    stored = sum(s.store.bytes_at_once * s.executions for s in statements)
    missed = [0.0, 0.0, 0.0]
    for statement in statements:
        footprints = footprints_bytes(statement)
        for level, size in enumerate(machine.caches_bytes):
            missed[level] += missed_bytes(statement, footprints, size)
    parallel = sum(s.executions for s in statements if any(p.is_parallel for p in s.loops))
    extents = [loop.extent for s in statements for loop in s.loops if loop.is_parallel]
    threads = min(machine.cores, max(extents, default=1)) if kernel.is_parallel else 1
    total_bytes = inputs_bytes + outputs_bytes + kernel.workspace_bytes
    load_count = max(1.0, sum(count for _, count in loads))
    ops = {name: sum(s.ops[name] * s.executions for s in statements) / work for name in OP_CLASSES}
    values = {
        "log_work": _log(work),
        "log_elements": _log(elements),
        "log_flops": _log(flops),
        "log_inputs_bytes": _log(inputs_bytes),
        "log_outputs_bytes": _log(outputs_bytes),
        "log_workspace_bytes": _log(kernel.workspace_bytes),
        "log_loaded_bytes": _log(traffic),
        "log_stored_bytes": _log(stored),
        "log_missed_l1_per_work": _log(missed[0] / work),
        "log_missed_l2_per_work": _log(missed[1] / work),
        "log_missed_l3_per_work": _log(missed[2] / work),
        "log_tensors_per_l1": _ratio(total_bytes, machine.caches_bytes[0]),
        "log_tensors_per_l2": _ratio(total_bytes, machine.caches_bytes[1]),
        "log_tensors_per_l3": _ratio(total_bytes, machine.caches_bytes[2]),
        "bytes_per_work": total_bytes / work,
        "flops_per_work": flops / work,
        "flops_per_byte": _log(flops / max(1, total_bytes)),
        "reuse": _ratio(traffic + stored, max(1, total_bytes)),
        "lanes": elements / work,
        "loads_per_work": load_count / work,
        "statements": float(len(statements)),
        "nests": float(_nests(statements)),
        "depth": float(max((len(s.loops) for s in statements), default=0)),
        "parallel_share": parallel / work,
        "log_parallel_extent": _log(max(extents, default=0)),
        "threads": float(threads),
        "inputs": float(len(kernel.inputs)),
        "outputs": float(len(kernel.outputs)),
        "inplace": float(len(kernel.inplace)),
        "element_bytes": float(max((s.store.element_bytes for s in statements), default=4)),
        "machine_vector_bytes": float(machine.vector_bytes),
        "machine_cores": float(machine.cores),
        "machine_has_fma": float(machine.has_fma),
        "log_machine_l1": _log(machine.caches_bytes[0]),
        "log_machine_l2": _log(machine.caches_bytes[1]),
        "log_machine_l3": _log(machine.caches_bytes[2]),
    }
    values |= {f"{name}_per_work": ops[name] for name in OP_CLASSES}
    for name in _PATTERNS:
        hits = sum(count for load, count in loads if _pattern(load) == name)
        values[f"loads_{name}"] = hits / load_count
        hits = sum(s.executions for s in statements if _pattern(s.store) == name)
        values[f"stores_{name}"] = hits / work
    conflicts = sum(count for load, count in loads if _conflicts(load))
    values["loads_conflicting"] = conflicts / load_count
    values["stores_conflicting"] = (
        sum(s.executions for s in statements if _conflicts(s.store)) / work
    )
    return values


_PATTERNS = ("fixed", "unit", "near", "far")


def _statement_part(statement: Statement | None) -> dict[str, float]:
    """What the statement does; zeros when a kernel has none of that rank."""
    loads = statement.loads if statement else ()
    loops = statement.loops if statement else ()
    values = {
        "log_executions": _log(statement.executions) if statement else 0.0,
        "lanes": float(statement.store.lanes) if statement else 0.0,
        "depth": float(len(loops)),
        "loads": float(len(loads)),
        "arithmetic": float(_arithmetic(statement)) if statement else 0.0,
        "calls": float(statement.ops["call"]) if statement else 0.0,
        "log_reduced": _log(_reduced(statement)) if statement else 0.0,
    }
    footprints = footprints_bytes(statement) if statement else []
    for place in range(_INNER_LOOPS):
        exists = statement is not None and place < len(loops)
        at = len(loops) - 1 - place
        strides = [abs(load.strides_bytes[at]) for load in loads] if exists else []
        values |= {
            f"log_extent_in{place}": _log(loops[at].extent) if exists else 0.0,
            f"is_parallel_in{place}": float(exists and loops[at].is_parallel),
            f"log_store_stride_in{place}": (
                _log(abs(statement.store.strides_bytes[at])) if statement and exists else 0.0
            ),
            f"log_least_stride_in{place}": _log(min(strides, default=0)),
            f"log_greatest_stride_in{place}": _log(max(strides, default=0)),
            f"fixed_loads_in{place}": float(sum(stride == 0 for stride in strides)),
            f"log_footprint_in{place}": _log(footprints[place + 1]) if exists else 0.0,
        }
    return values


def _elements(statement: Statement) -> float:
    return statement.executions * statement.store.lanes


def _arithmetic(statement: Statement) -> int:
    ops = statement.ops
    return sum(ops[name] for name in ("add", "multiply", "divide", "compare", "select", "call"))


def _weight(statement: Statement) -> float:
    return statement.executions * (1 + _arithmetic(statement) + len(statement.loads))


def _reduced(statement: Statement) -> float:
    strides = statement.store.strides_bytes
    return math.prod(
        loop.extent for loop, stride in zip(statement.loops, strides, strict=True) if not stride
    )


def _pattern(access: Access) -> str:
    """How an access moves in the innermost loop that moves it, or between the lanes of a vector."""
    if access.lanes > 1 and access.lane_stride:
        return "unit" if access.lane_stride == 1 else "near" if access.lane_stride < 16 else "far"
    stride = abs(access.strides_bytes[-1]) if access.strides_bytes else 0
    if stride == 0:
        return "fixed"
    if stride <= access.element_bytes:
        return "unit"
    return "near" if stride < 64 else "far"


def _conflicts(access: Access) -> bool:
    """Whether the access jumps by a large power of two, so that few cache sets take it all."""
    stride = abs(access.strides_bytes[-1]) if access.strides_bytes else 0
    return stride >= _CONFLICT_BYTES and stride & (stride - 1) == 0


def _nests(statements: Sequence[Statement]) -> int:
    return len({id(s.loops[0]) for s in statements if s.loops})


def _tensor_bytes(spec: TensorSpec) -> int:
    digits = "".join(c for c in spec.dtype.split("x")[0] if c.isdigit())
    return math.prod(spec.shape) * max(1, int(digits or 8) // 8)


def _log(value: float) -> float:
    return math.log2(1.0 + max(0.0, value))


def _ratio(value: float, reference: float) -> float:
    return math.log2(max(value, 1.0) / reference)
