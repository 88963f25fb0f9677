"""The plan of a package as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.package.checkpoint_file import hash_of
from tvm_xengine.aot.package.code_size import CodeSize
from tvm_xengine.aot.package.contents import SCHEMA, Array, Package, StateTensor, inputs_of
from tvm_xengine.aot.plan.planned import PlannedFunction
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.arena.plan import ArenaPlan
from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.scheduling.schedule import Compute, Free, Transfer, scratch_bytes


def plan_document(
    package: Package,
    functions: Mapping[Entry, PlannedFunction],
    keep_all_bytes: int | None,
    code: CodeSize | None,
) -> dict[str, object]:
    """All planning decisions, as plain numbers.

    Parameters
    ----------
    keep_all_bytes
        What the first region would need if the training step recomputed and moved nothing; None
        without one.
    code
        None when the target's compiler is not installed.
    """
    plan = next(iter(functions.values())).plan
    return {
        "schema": SCHEMA,
        "name": package.name,
        "target": package.target.name,
        "backend": package.backend.value,
        "optimize": package.optimize.value,
        "plan_hash": f"{package.plan_hash:016x}",
        "alignment_bytes": package.alignment_bytes,
        "regions": _regions(package, plan),
        "keep_all_bytes": keep_all_bytes,
        "state_bytes": package.state_bytes,
        "flash_bytes": package.flash_bytes,
        "code": None
        if code is None
        else {"text_bytes": code.text_bytes, "stack_bytes": code.stack_bytes, "flags": code.flags},
        "state": [_state(tensor) for tensor in package.state],
        "storage_error": package.storage_error,
        "settings": dict(package.hyper),
        "constants": {name: int(array.nbytes) for name, array in package.constants.items()},
        "origin": f"{package.origin:016x}",
        "frozen": {name: _frozen(value) for name, value in package.frozen_values.items()},
        "frozen_hash": f"{hash_of(package.frozen_values):016x}",
        "functions": {entry.value: _function(package, f) for entry, f in functions.items()},
    }


def _regions(package: Package, plan: Plan) -> dict[str, dict[str, int]]:
    return {
        name: {
            "bytes": size,
            "kept_bytes": package.kept_bytes[name],
            "budget_bytes": package.budget_bytes[name],
            "peak_bytes": plan.simulation.peak_bytes[name],
            "summed_bytes": package.summed_bytes[name],
        }
        for name, size in package.regions.items()
    }


def _state(tensor: StateTensor) -> dict[str, object]:
    return {
        "name": tensor.name,
        "saved_as": list(tensor.saved_as),
        "dtype": tensor.place.dtype,
        "shape": list(tensor.place.shape),
        "bytes": tensor.place.size_bytes,
        "region": tensor.place.device,
        "offset": tensor.place.offset_bytes,
    }


def _frozen(value: Array) -> dict[str, object]:
    return {
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "hash": f"{hash_of({'': value}):016x}",
    }


def as_json(document: Mapping[str, object]) -> str:
    """The document as text."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _function(package: Package, function: PlannedFunction) -> dict[str, object]:
    plan, program = function.plan, function.program
    graph = plan.problem.graph
    return {
        "slices": function.slices,
        "status": plan.result.status.value,
        "gap": plan.result.gap,
        "cost_us": plan.simulation.cost_us,
        "cost_source": "roofline",
        "arena_bytes": dict(program.interface.arena_bytes),
        "energy_uj": plan.simulation.energy_uj,
        "inputs": {name: view.size_bytes for name, view in inputs_of(program).items()},
        "results": {name: view.size_bytes for name, view in program.interface.results.items()},
        "recomputed_ops": list(plan.schedule.repeats(graph)),
        "transfers": plan.schedule.transfers,
        "buffers": _buffers(plan.arenas, graph, function),
        "scratch": _scratch(plan, function),
        "steps": [_step(step) for step in plan.schedule.steps],
        "kernels": _kernels(package, function),
    }


def _kernels(package: Package, function: PlannedFunction) -> dict[str, str]:
    """The C function of each op, and of each variant of it that runs."""
    kernel = function.lowered.kernel
    runs = (step for step in function.plan.schedule.steps if isinstance(step, Compute))
    return {
        f"{run.op} with {run.variant}" if run.variant else run.op: package.codes[
            kernel(run.op, run.device, run.variant).symbol
        ].name
        for run in runs
    }


def _buffers(
    arenas: ArenaPlan, graph: OpGraph, function: PlannedFunction
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for instance in arenas.residency.instances:
        if not instance.size_bytes:
            continue
        start = _arena_start(function, instance.device)
        rows.append(
            {
                "tensor": instance.tensor,
                "role": graph.tensor[instance.tensor].role.value,
                "region": instance.device,
                "offset": start + arenas.offset_bytes[instance.id],
                "bytes": instance.size_bytes,
                "first_step": instance.start,
                "last_step": instance.end,
            }
        )
    return rows


def _scratch(plan: Plan, function: PlannedFunction) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for at, offset in plan.arenas.workspace_offset_bytes.items():
        step = plan.schedule.steps[at]
        assert isinstance(step, Compute)
        rows.append(
            {
                "op": step.op,
                "step": at,
                "region": step.device,
                "offset": _arena_start(function, step.device) + offset,
                "bytes": scratch_bytes(plan.problem, step),
            }
        )
    return rows


def _arena_start(function: PlannedFunction, region: str) -> int:
    total = function.program.interface.arena_bytes[region]
    return total - function.plan.arenas.arena_bytes[region]


def _step(step: Compute | Transfer | Free) -> list[str]:
    match step:
        case Compute(op, region, variant):
            return ["compute", op, region, *([variant] if variant else [])]
        case Transfer(tensor, src, dst):
            return ["copy", tensor, src, dst]
        case Free(tensor, region):
            return ["free", tensor, region]
