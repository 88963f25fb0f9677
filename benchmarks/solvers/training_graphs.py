"""Scheduling problems of real training steps: extracted graphs, roofline times, named platforms.

The graphs in ``benchmarks/solvers/graphs`` are written by ``benchmarks/solvers/extract_training_graphs.py``.
Times are made up, but plausible: a launch, then the longer of arithmetic and memory traffic,
at a share of the peak rates that is drawn for each kernel and device.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import CostSource, OpCost, Problem
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.published.baselines.placed import run_once
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.working_set import working_sets

FOLDER = Path(__file__).parent / "graphs"
MAIN = "accelerator"
"""The device whose budget is small; it holds the state."""


@dataclass(frozen=True)
class Speed:
    """What a computing device can do, and its power while it does.

    Attributes
    ----------
    best_share
        Kernels reach between half of this and all of it, as a share of both rates.
    """

    launch_us: float
    gflop_s: float
    memory_gb_s: float
    power_w: float
    best_share: float = 0.9


SPEEDS = {
    MAIN: Speed(4.0, 8000.0, 400.0, 40.0),
    "cpu": Speed(1.5, 1200.0, 80.0, 30.0),
    "little": Speed(1.5, 400.0, 40.0, 4.0),
}
PCIE = Link("a", "b", 10.0, 12.0, energy_nj_per_byte=0.1)
SHARED = Link("a", "b", 2.0, 60.0, energy_nj_per_byte=0.03)
FLASH = Link("a", "b", 80.0, 3.0, energy_nj_per_byte=0.3)
PLATFORMS: dict[str, tuple[tuple[str, ...], Link]] = {
    "one": ((MAIN,), PCIE),
    "pcie": ((MAIN, "cpu"), PCIE),
    "shared": ((MAIN, "cpu"), SHARED),
    "three": ((MAIN, "cpu", "little"), SHARED),
    "storage": ((MAIN, "flash"), FLASH),
}
"""Devices, the main one first, and the link between any two; a device without speed stores."""


@dataclass(frozen=True)
class TrainingGraph:
    """An extracted training step.

    Attributes
    ----------
    flops, workspace_bytes
        Of each kernel.
    """

    graph: OpGraph
    flops: dict[str, float]
    workspace_bytes: dict[str, int]


@cache
def training_graph(name: str) -> TrainingGraph:
    """The extracted graph of the network of that name."""
    document = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    tensors = tuple(
        Tensor(f"t{k}", size, Role(role), alias)
        for k, (size, role, alias) in enumerate(document["tensors"])
    )
    kernels = document["kernels"]
    ops = tuple(
        Op(
            f"{k}_{kernels[kernel][0]}",
            kernels[kernel][0],
            tuple(inputs),
            tuple(outputs),
            tuple((output, state) for output, state in updates),
            recomputable,
        )
        for k, (kernel, inputs, outputs, updates, recomputable) in enumerate(document["ops"])
    )
    return TrainingGraph(
        OpGraph(tensors, ops, tuple(document["outputs"])),
        {kernel: flops for kernel, flops, _ in kernels},
        {kernel: -(-size // 64) * 64 for kernel, _, size in kernels},
    )


def problem_of(network: str, platform: str, ratio: float | None) -> Problem:
    """The training step of `network` on a platform of `PLATFORMS`.

    Parameters
    ----------
    ratio
        The main device's budget is its state plus this share of what keeping all tensors on it
        needs beside the state; None gives 2 % more than what any schedule needs there. The
        others have three times that need.
    """
    problem = _without_budgets(network, platform)
    indexed = index_problem(problem, Objective.COST)
    everything = run_once(indexed, [problem.platform.index[MAIN]] * indexed.op_count)
    if everything is None:
        raise ValueError(f"{MAIN} must be able to run everything")
    peak = simulate(problem, everything).peak_bytes[MAIN]
    state = problem.home_bytes[MAIN]
    budgets = {device.name: 3 * peak for device in problem.platform.devices}
    if ratio is None:
        alone = _without_budgets(network, "one")
        budgets[MAIN] = int(1.02 * working_sets(alone).least_bytes()[MAIN])
    else:
        budgets[MAIN] = int(state + ratio * (peak - state))
    return problem.with_budgets(budgets)


@cache
def _without_budgets(network: str, platform: str) -> Problem:
    names, link = PLATFORMS[platform]
    devices = tuple(
        Device(
            name,
            "llvm" if name in SPEEDS else None,
            UNLIMITED_BYTES,
            power_w=SPEEDS[name].power_w if name in SPEEDS else 0.0,
        )
        for name in names
    )
    links = tuple(replace(link, src=a, dst=b) for a in names for b in names if a != b)
    step = training_graph(network)
    costs = {
        op.name: {name: _roofline(step, op, name) for name in names if name in SPEEDS}
        for op in step.graph.ops
    }
    return Problem(step.graph, Platform(devices, links), costs)


def _roofline(step: TrainingGraph, op: Op, device: str) -> OpCost:
    speed = SPEEDS[device]
    draw = zlib.crc32(f"{op.kernel} on {device}".encode()) / 2**32
    share = speed.best_share * (0.5 + 0.5 * draw)
    moved = sum(step.graph.tensor[name].size_bytes for name in (*op.inputs, *op.outputs))
    arithmetic_us = step.flops[op.kernel] / (1e3 * speed.gflop_s)
    traffic_us = moved / (1e3 * speed.memory_gb_s)
    compute_us = round(speed.launch_us + max(arithmetic_us, traffic_us) / share, 3)
    return OpCost(
        compute_us,
        step.workspace_bytes[op.kernel],
        energy_uj=round(speed.power_w * compute_us, 3),
        source=CostSource.ROOFLINE,
    )
