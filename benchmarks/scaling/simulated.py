"""Data parallelism from one machine to 64, planned and simulated: where the time goes, how good the proof is.

    python -m benchmarks.scaling.simulated [NETWORK ...]

Each network is added to `benchmarks/results/scaling.jsonl` when it is done, and is not done again; the
table is written anew each time.
"""

from __future__ import annotations

import json
import sys
import time

import tvm_xengine as xe
from benchmarks import record, tables
from tvm_xengine.compiler.simulated import plan_one_of_many
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.replicas.group import ReplicaGroup
from tvm_xengine.solvers.result import Limits, Objective

NETWORKS: dict[str, dict[str, int]] = {
    "lenet": {"batch_size": 32},
    "resnet8": {"batch_size": 16},
    "gpt_nano": {"batch_size": 8},
    "resnet18": {"batch_size": 8, "size": 32},
}
"""With the samples of each machine, so that the whole batch grows with their number."""
COUNTS = (1, 2, 4, 8, 16, 32, 64)
NETWORK_KINDS = {"10 Gbit/s": (30.0, 1.25), "100 Gbit/s": (5.0, 12.5)}
"""Latency (us) and bandwidth (GB/s) of a message between two machines: Ethernet over TCP, and RDMA."""
_LIMIT_S = 6.0
RESULTS = record.RESULTS / "scaling.jsonl"
PAGE = tables.PAGES / "scaling.md"
_CORE = "llvm -mcpu=x86-64-v3 -num-cores=1"

_HEAD = """# From one machine to 64, simulated

Steps of data parallelism on machines of one core (AVX2, generated kernels, roofline costs), of which
none was there: every machine has the same number of samples, so the batch grows. `computes` and
`network busy` are how long a machine and the network are busy in the step, `exposed` the part of the step in
which the machine does not compute. `efficiency` is the time of one machine by that of a step. The bound
is for all schedules in which the machines do the same at the same time, so one machine is solved for
all; `solve` is the time for that, with a limit of 6 s. Buckets are of the sizes that
planning chose among five.

Where the time goes: gradients travel beside the backward pass, and hardly show up to eight machines. Then
the 2 (N - 1) rounds of a ring count, each with the latency of a message: nearly all of `network` at 64
machines over 10 Gbit/s is latency. Batch norms exchange their statistics in the middle of the step, two
small sums for each norm and direction, which no schedule can hide behind much else. Buckets grow with
the number of machines for the same reason. Where the proof gets weak: as long as the machine is busy all
the time, its load is the bound, and the plan is optimal. The bound counts statistics that a norm waits for
while nothing else can run. Gaps open where many machines wait for sums of gradients in a row.

"""

_COLUMNS = (
    *("network", "link", "machines", "batch", "ops", "bucket", "step", "computes", "network busy"),
    *("exposed", "efficiency", "gap", "solve"),
)

Row = dict[str, str | int | float]


def measure(name: str) -> list[Row]:
    """Rows of a network for all numbers of machines and kinds of links."""
    options = dict(NETWORKS[name])
    share = options.pop("batch_size")
    machine = Platform((Device("core", _CORE, 1 << 32, ("tir",)),))
    rows: list[Row] = []
    costed = {}
    for shares in (1, 2):
        training = xe.training_step(name, batch_size=shares * share, **options)
        costed[shares] = xe.make_problem(xe.lower(training, machine), costs="roofline")
    plan = PlanOptions(objective=Objective.MAKESPAN, limits=Limits(_LIMIT_S, 0.01))
    for kind, (latency_us, bandwidth_gb_s) in NETWORK_KINDS.items():
        for count in COUNTS:
            problem = costed[min(count, 2)]
            group = ReplicaGroup(machine, count, latency_us, bandwidth_gb_s)
            began_s = time.perf_counter()
            found = plan_one_of_many(
                problem.costed, group, plan, problem.lowered.stores, problem.lowered.reporter
            )
            rows.append(
                {
                    "network": name,
                    "link": kind,
                    "machines": count,
                    "batch": count * share,
                    "ops": found.ops,
                    "bucket_bytes": found.bucket_bytes,
                    "step_us": found.plan.simulation.makespan_us,
                    "compute_us": found.compute_us,
                    "network_us": found.network_us,
                    "bound_us": found.plan.result.bound,
                    "solve_s": time.perf_counter() - began_s,
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    return rows


def page(rows: list[Row]) -> str:
    """The table of all rows."""
    alone = {row["network"]: float(row["step_us"]) for row in rows if row["machines"] == 1}
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    for row in rows:
        step, compute, sent = (float(row[key]) for key in ("step_us", "compute_us", "network_us"))
        cells = (
            row["network"],
            row["link"],
            row["machines"],
            row["batch"],
            row["ops"],
            f"{int(row['bucket_bytes']) >> 10} KiB" if row["bucket_bytes"] else "each",
            f"{step / 1000:.2f} ms",
            f"{compute / 1000:.2f} ms",
            f"{sent / 1000:.2f} ms",
            f"{100 * (step - compute) / step:.1f} %",
            f"{100 * alone[row['network']] / step:.1f} %",
            f"{100 * (1 - float(row['bound_us']) / step):.2f} %",
            f"{float(row['solve_s']):.0f} s",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return _HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is missing, and write the page."""
    rows: list[Row] = []
    if RESULTS.exists():
        rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    done = {row["network"] for row in rows}
    for name in sys.argv[1:] or NETWORKS:
        if name not in done:
            rows += measure(name)
            RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
            PAGE.write_text(page(rows))
    PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
