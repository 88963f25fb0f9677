"""The schema of every kind of file that is written and read, or only written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
from tvm_xengine.cost_models.dataset.dataset import FeatureNames, KernelRecord
from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.cost_models.measure.measurements import (
    LinkMeasurement,
    Measurement,
    MeasurementFailure,
)
from tvm_xengine.kernels.store.tuned import TunedSchedule
from tvm_xengine.scheduling.graph import Op, Tensor
from tvm_xengine.scheduling.platform import Device, Link
from tvm_xengine.scheduling.problem import SCHEMA as PROBLEM_SCHEMA
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut
from tvm_xengine.scheduling.schedule import SCHEMA as SCHEDULE_SCHEMA
from tvm_xengine.session.plans.plan_file import SCHEMA as PLAN_SCHEMA
from tvm_xengine.session.plans.plan_file import SavedResult
from tvm_xengine.state.checkpoint import SCHEMA as CHECKPOINT_SCHEMA
from tvm_xengine.state.checkpoint import Position


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Attributes
    ----------
    title, written_by, read_by
        For the page; `read_by` is empty where this program only writes it.
    """

    title: str
    written_by: str
    read_by: str
    make: Callable[[], Schema]


_STREAMS: dict[str, Schema] = {
    "handover_us": {
        **NUMBER,
        "description": "Time of handing over from one stream to another that waits for it.",
    },
    "start_us": {
        **NUMBER,
        "description": "Time that the threads of streams take to start and to end a step.",
    },
}


def problem() -> Schema:
    """A scheduling problem."""
    end = or_null({**NUMBER, "description": "End of the interval of the run time."})
    kernel = schema_of_class(OpCost, without=["interval_us", "variants"], lo_us=end, hi_us=end)
    variants = by_name(kernel)
    without = ["interval_us"]
    cost = schema_of_class(OpCost, without=without, lo_us=end, hi_us=end, variants=variants)
    required = {
        "schema": {"const": PROBLEM_SCHEMA},
        "tensors": rows(schema_of(Tensor)),
        "ops": rows(schema_of(Op)),
        "outputs": rows({**TEXT, "description": "A tensor that the step delivers."}),
        "devices": rows(schema_of(Device)),
        "links": rows(schema_of(Link)),
        "platform": record({"home": TEXT, "alignment_bytes": WHOLE}),
        "costs": {**by_name(by_name(cost)), "description": "By op and device."},
        "home": {**by_name(TEXT), "description": "Device of each resident tensor."},
    }
    constraints = record({"pinned": by_name(TEXT), "kept": rows(TEXT)})
    return record({**required, "constraints": constraints, **_STREAMS}, list(required))


def schedule() -> Schema:
    """A schedule: one list for each step."""

    def step(kind: str, *operands: str) -> Schema:
        names: list[Schema] = [{**TEXT, "description": one} for one in operands]
        return sequence([{"const": kind}, *names])

    steps = [
        step("compute", "op", "device"),
        step("compute", "op", "device", "variant of the kernel"),
        step("transfer", "tensor", "from device", "to device"),
        step("free", "tensor", "device"),
    ]
    return record({"schema": {"const": SCHEDULE_SCHEMA}, "steps": rows({"anyOf": steps})})


def plan() -> Schema:
    """A plan: a problem, its schedule, its addresses, and what is proven."""
    arenas: dict[str, Schema] = {
        "offset_bytes": rows({**WHOLE, "description": "Address of each stay of a tensor."}),
        "workspace_offset_bytes": {**by_name(WHOLE), "description": "By position in the schedule."},
        "arena_bytes": {**by_name(WHOLE), "description": "By device."},
    }
    return record(
        {
            "schema": {"const": PLAN_SCHEMA},
            "fingerprint": {**TEXT, "description": "Of the lowered step; empty without one."},
            "problem": problem(),
            "schedule": schedule(),
            "arenas": record(arenas),
            "kernels": {
                **by_name(TEXT),
                "description": "Kernel source, by kernel@device (with variant).",
            },
            "measured_kernels": WHOLE,
            "cut": or_null(schema_of(BatchCut)),
            "names": {**by_name(rows(TEXT)), "description": "The model's names of a tensor."},
            "result": schema_of(SavedResult),
        }
    )


def platform() -> Schema:
    """A platform file (TOML)."""
    size = {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": 'Such as "192KiB".'}
    device = schema_of_class(Device, without=["budget_bytes"], target=TEXT, budget=size)
    device["properties"]["kind"] = {
        "enum": ["host", "file"],
        "description": "Of a device that only stores: memory of the host, or a file in `folder`.",
    }
    device["required"] = ["name", "budget"]
    link = schema_of_class(
        Link, latency_us=NUMBER, bandwidth_gb_s=NUMBER, engine=TEXT, both_ways=TRUTH
    )
    properties = {
        "device": rows(device),
        "link": rows(link),
        "home": {**TEXT, "description": "Device on which state lives between steps."},
        "alignment_bytes": WHOLE,
        **_STREAMS,
        "provenance": {"description": "Where the figures are from."},
    }
    return record(properties, ["device"])


def measurements() -> Schema:
    """A line of a file of measurements."""
    kinds = (Measurement, MeasurementFailure, LinkMeasurement, Machine)
    return {"anyOf": [schema_of(kind) for kind in kinds]}


def kernels() -> Schema:
    """A line of ``kernels.jsonl`` of a dataset."""
    return {"anyOf": [schema_of(KernelRecord), schema_of(FeatureNames)]}


def tuned() -> Schema:
    """A line of ``schedules.jsonl`` of a tuning database."""
    return schema_of(TunedSchedule)


def checkpoint() -> Schema:
    """The text ``tvm_xengine`` in the header of a checkpoint."""
    position = schema_of_class(Position)
    header = {**position["properties"], "schema": {"const": CHECKPOINT_SCHEMA}}
    return record(header, [*position["required"], "schema"])


FORMATS: Mapping[str, Format] = {
    "problem": Format(
        "A scheduling problem", "`--save-problem`", "`solve`, `explain --problem`", problem
    ),
    "schedule": Format(
        "A schedule", "`--save-schedule`", "`--schedule`, `explain`, `compare`", schedule
    ),
    "plan": Format("A plan", "`--save-plan`, `plan.save`", "`explain`, `compare`", plan),
    "platform": Format("A platform (TOML)", "you, `Platform.save`", "`--platform`", platform),
    "checkpoint": Format(
        "The text `tvm_xengine` in the header of a run's checkpoint (safetensors)",
        "`train --checkpoint`, `Step.save`",
        "`train --resume`, `Step.load`",
        checkpoint,
    ),
    "measurements": Format(
        "A line of a file of measurements (`measurements.jsonl`)",
        "whatever measures",
        "whatever plans",
        measurements,
    ),
    "kernels": Format(
        "A line of a dataset's `kernels.jsonl`", "`costs collect`", "`costs ...`", kernels
    ),
    "tuned": Format(
        "A line of a tuning database's `schedules.jsonl`", "`tune`", "`--database`", tuned
    ),
}
"""By the name of the schema's file."""
