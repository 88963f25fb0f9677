"""The schema of the reports that commands write with ``--json``, and of a package's plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from tests.docs.schemas.formats import Format
from tests.docs.schemas.from_types import (
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    Schema,
    by_name,
    or_null,
    record,
    rows,
    schema_of,
    schema_of_class,
    sequence,
)
from tvm_xengine.aot.package.contents import SCHEMA as PACKAGE_SCHEMA
from tvm_xengine.doctor.check import Check
from tvm_xengine.explain.comparison import Comparison
from tvm_xengine.explain.explanation import (
    DeviceFinding,
    Explanation,
    OpFinding,
    TensorFinding,
)
from tvm_xengine.planning.alternatives.changed_schedule import Alternative
from tvm_xengine.report.front import FrontPoint
from tvm_xengine.report.summary import PlanSummary, RunSummary
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.solvers.result import Status

_DTYPE_SHAPE: Mapping[str, Schema] = {"dtype": TEXT, "shape": rows(WHOLE)}

_HASH = {**TEXT, "pattern": "^[0-9a-f]{16}$"}


def _plan() -> Schema:
    return schema_of(PlanSummary, written=True)


def _train() -> Schema:
    plan, run = _plan(), schema_of(RunSummary, written=True)
    return record({**plan["properties"], **run["properties"]})


def _train_together() -> Schema:
    memory = record(
        {
            "budget_bytes": WHOLE,
            "state_bytes": {**by_name(WHOLE), "description": "Of each model, kept between steps."},
            "transient_bytes": {**by_name(WHOLE), "description": "What each needs beyond it."},
            "shared_bytes": {**WHOLE, "description": "Used by all models in turns."},
            "planned_arena_bytes": WHOLE,
            "apart_bytes": {**WHOLE, "description": "Of the same plans in arenas of their own."},
            "measured_peak_bytes": WHOLE,
        }
    )
    return record({"workloads": by_name(_train()), "memory": by_name(memory)})


def _estimate() -> Schema:
    return record(
        {
            "model": TEXT,
            "device": TEXT,
            "batch": WHOLE,
            "keep_all_bytes": WHOLE,
            "smallest_bytes": {**WHOLE, "description": "Of the smallest schedule that is known."},
            "least_bytes": {**WHOLE, "description": "Proven: no schedule needs less."},
            "peak_bytes": {
                **by_name(WHOLE),
                "description": "By category, at the peak of keep-all.",
            },
            "fits": or_null({**TRUTH, "description": "The answer to --fits."}),
            "largest_batch": or_null({**WHOLE, "description": "The answer to --largest-batch."}),
        }
    )


def _pareto() -> Schema:
    return record({"model": TEXT, "points": rows(schema_of(FrontPoint, written=True))})


def _explain() -> Schema:
    # What stands behind the figures is left out, as it is where an alternative is printed.
    behind = [one.name for one in fields(Alternative) if not one.repr]
    alternative = schema_of_class(Alternative, written=True, without=behind, fits=TRUTH)
    offered = rows(alternative)
    tensor = schema_of_class(TensorFinding, written=True, alternatives=or_null(offered))
    op = schema_of_class(OpFinding, written=True, alternatives=offered)
    return schema_of_class(
        Explanation,
        written=True,
        devices=rows(schema_of(DeviceFinding, written=True)),
        tensors=rows(tensor),
        ops=rows(op),
    )


def _doctor() -> Schema:
    return record({"is_healthy": TRUTH, "checks": rows(schema_of(Check, written=True))})


def _eval() -> Schema:
    metrics = record({"model": TEXT, "state": TEXT, "samples": WHOLE, "loss": NUMBER})
    return {**metrics, "additionalProperties": NUMBER}


def _export() -> Schema:
    region = record({"bytes": WHOLE, "state_bytes": WHOLE, "budget_bytes": WHOLE})
    compared = {
        "name": TEXT,
        "arena_bytes": by_name(WHOLE),
        **dict.fromkeys(("step_us", "energy_uj", "instructions"), NUMBER),
        **dict.fromkeys(("recomputed_ops", "transfers"), WHOLE),
    }
    return record(
        {
            "name": TEXT,
            "target": TEXT,
            "directory": TEXT,
            "regions": by_name(region),
            "entries": {
                **by_name(by_name(WHOLE)),
                "description": "Bytes of each region, by entry point.",
            },
            "slices": {
                **by_name(WHOLE),
                "description": "In how many slices of the batch each entry point runs.",
            },
            "lean_kernels": {
                **by_name(WHOLE),
                "description": "How many kernels need less scratch memory than the usual ones.",
            },
            "tiled_kernels": {
                **by_name(WHOLE),
                "description": "How many kernels run in tiles that are copied from slow memory meanwhile.",
            },
            "status": schema_of(Status),
            "gap": or_null(NUMBER),
            "recomputed_ops": WHOLE,
            "transfers": WHOLE,
            "keep_all_bytes": or_null(WHOLE),
            "compared": {
                **rows(record(compared)),
                "description": "The plan, keep-all and the smallest arena found; nothing without a step.",
            },
            "code_bytes": or_null(WHOLE),
            "stack_bytes": or_null(WHOLE),
            "self_test_passed": or_null(TRUTH),
            "choice": or_null(_choice()),
        }
    )


def _choice() -> Schema:
    layer = {
        "name": TEXT,
        "score": NUMBER,
        "state_bytes": WHOLE,
        "is_trained": TRUTH,
        "reason": {**TEXT, "description": "Why it is not trained."},
    }
    return record(
        {
            "score": {**NUMBER, "description": "Sum over the layers that are trained."},
            "bound": {
                **NUMBER,
                "description": "No choice of layers that fits has a greater score.",
            },
            "gap": NUMBER,
            "total_score": NUMBER,
            "plans": {**WHOLE, "description": "So many subsets of layers were planned."},
            "layers": rows(record(layer)),
        }
    )


def _package() -> Schema:
    sizes = ("bytes", "kept_bytes", "budget_bytes", "peak_bytes", "summed_bytes")
    code = {"text_bytes": WHOLE, "stack_bytes": or_null(WHOLE), "flags": {}}
    frozen = record({**_DTYPE_SHAPE, "hash": _HASH})
    state = {
        "name": TEXT,
        "saved_as": rows(TEXT),
        **_DTYPE_SHAPE,
        "bytes": WHOLE,
        "region": TEXT,
        "offset": WHOLE,
    }
    return record(
        {
            "schema": {"const": PACKAGE_SCHEMA},
            **dict.fromkeys(("name", "target", "backend", "optimize"), TEXT),
            "plan_hash": _HASH,
            "alignment_bytes": WHOLE,
            "regions": by_name(record(dict.fromkeys(sizes, WHOLE))),
            "keep_all_bytes": or_null(WHOLE),
            **dict.fromkeys(("state_bytes", "flash_bytes"), WHOLE),
            "code": or_null(record(code)),
            "state": rows(record(state)),
            "storage_error": or_null(NUMBER),
            "settings": by_name(NUMBER),
            "constants": {**by_name(WHOLE), "description": "Bytes of each array in flash."},
            "origin": _HASH,
            "frozen": by_name(frozen),
            "frozen_hash": _HASH,
            "functions": by_name(_function()),
        }
    )


def _function() -> Schema:
    buffer = {
        "tensor": TEXT,
        "role": schema_of(Role),
        "region": TEXT,
        **dict.fromkeys(("offset", "bytes", "first_step", "last_step"), WHOLE),
    }
    scratch = {"op": TEXT, "step": WHOLE, "region": TEXT, "offset": WHOLE, "bytes": WHOLE}
    kinds = {"compute": 2, "copy": 3, "free": 2}
    steps = [sequence([{"const": kind}, *[TEXT] * count]) for kind, count in kinds.items()]
    return record(
        {
            "slices": WHOLE,
            "status": schema_of(Status),
            "gap": or_null(NUMBER),
            "cost_us": NUMBER,
            "cost_source": TEXT,
            "arena_bytes": by_name(WHOLE),
            "energy_uj": NUMBER,
            "inputs": by_name(WHOLE),
            "results": by_name(WHOLE),
            "recomputed_ops": rows(TEXT),
            "transfers": WHOLE,
            "buffers": rows(record(buffer)),
            "scratch": rows(record(scratch)),
            "steps": rows({"anyOf": steps}),
            "kernels": {**by_name(TEXT), "description": "The C function of each op."},
        }
    )


REPORTS: Mapping[str, Format] = {
    "report-plan": Format("Report of a plan", "`plan --json`, `solve --json`", "", _plan),
    "report-train": Format("Report of a run", "`train --json`", "", _train),
    "report-train-together": Format(
        "Report of several models", "`train A B --json`", "", _train_together
    ),
    "report-estimate": Format("Report of an estimate", "`estimate --json`", "", _estimate),
    "report-pareto": Format("Points of a front", "`pareto --json`", "", _pareto),
    "report-explain": Format("Findings about a plan", "`explain --json`", "", _explain),
    "report-compare": Format(
        "Differences of two plans",
        "`compare --json`",
        "",
        lambda: schema_of(Comparison, written=True),
    ),
    "report-doctor": Format("Checks of an installation", "`doctor --json`", "", _doctor),
    "report-eval": Format("Metrics of a saved state", "`eval --json`", "", _eval),
    "report-export": Format("Report of an export", "`export --json`", "", _export),
    "package-plan": Format(
        "The plan of a C package (`NAME_plan.json`)",
        "`export`",
        "checkpoints of packages",
        _package,
    ),
}
"""By the name of the schema's file."""
