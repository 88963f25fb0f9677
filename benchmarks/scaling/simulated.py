"""Data parallelism from one machine to 64, planned and simulated: where the time goes, how good the proof is.

    python -m benchmarks.scaling.simulated [NETWORK ...]

A network that is recorded is not measured again.
"""

from __future__ import annotations

import sys
import time

import tvm_xengine as xe
from benchmarks.record import record, rows_of
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
TABLE = "scaling"
_CORE = "llvm -mcpu=x86-64-v3 -num-cores=1"


def measure(name: str) -> None:
    """Record a network for all numbers of machines and kinds of links."""
    options = dict(NETWORKS[name])
    share = options.pop("batch_size")
    machine = Platform((Device("core", _CORE, 1 << 32, ("tir",)),))
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
            record(
                TABLE,
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
                },
            )


def main(names: list[str]) -> None:
    """Record what is missing."""
    done = {row["network"] for row in rows_of(TABLE)}
    for name in names or NETWORKS:
        if name not in done:
            measure(name)


if __name__ == "__main__":
    main(sys.argv[1:])
