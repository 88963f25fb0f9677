"""One of two processes: trains a network with PyTorch and with ours in turns, and says what it saw.

``python -m benchmarks.cluster.rank NETWORK FILE``, started by `benchmarks.cluster.beside_torch`.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

import tvm_xengine as xe
from benchmarks.cluster import torch_ranks
from benchmarks.cluster.networks import CASES, Case
from benchmarks.cluster.torch_ranks import RATE, Batch
from tvm_xengine.cluster.ranks import RENDEZVOUS
from tvm_xengine.compiler.lean.slices import slicings
from tvm_xengine.compiler.replicas import ReplicasLike
from tvm_xengine.solvers.working_set import working_sets

LIMIT_S = 10.0
EQUAL_STEPS = 5
"""Losses of so many steps are compared: with more of them rounding grows by training."""
ROUNDS = 40
_SETTLE_S = 0.002
"""After a barrier, before a step of any kind: gloo's thread ends the barrier on the core of the step, and the
other process begins late if it has to wait for kernels."""
_TARGET = "llvm -mcpu=native -num-cores=1"
_SLOW = "llvm -mcpu=x86-64 -num-cores=1"
_AMPLE_BYTES = 1 << 32
_DEVICES = ("first", "second")
_UNEQUAL = (0.95, 0.475)
"""Budgets of an unequal pair as shares of the least with which one device takes the batch in one piece, or
in slices, where neither of the pair can train alone."""
_MOST_SLICES = 16
"""With more of them the least changes by less than a percent: what is left is state and a gradient."""

_Timed = Callable[[torch.Tensor, torch.Tensor], object]


@dataclass(frozen=True)
class _Way:
    """How ours trains: budgets, what is divided, and the target of the second device."""

    budgets: tuple[int, int]
    replicas: ReplicasLike
    second: str = _TARGET


@dataclass(frozen=True)
class Side:
    """What was seen of one way to train.

    Attributes
    ----------
    step_us
        Of the fastest step; of each step the time of the slower process.
    busy_us
        Likewise of processor time, to which work of others adds no waiting.
    losses
        Of the first steps.
    peak_bytes
        Of each process.
    budget_bytes
        Of each process, which ours keeps.
    predicted_us
        Time of the step as planned.
    samples
        Share of each process, where the batch is divided.
    run_us
        As `step_us`, without what the call does before and after: check and write the batch, read the loss.
    """

    step_us: float
    busy_us: float
    losses: tuple[float, ...]
    peak_bytes: tuple[int, int]
    budget_bytes: tuple[int, int] | None = None
    predicted_us: float | None = None
    samples: tuple[int, ...] | None = None
    run_us: float | None = None


def main(network: str, file: Path) -> None:
    """Train in all ways; the first process writes the file."""
    rank = int(os.environ["RANK"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{os.environ[RENDEZVOUS]}", rank=rank, world_size=2
    )
    case = CASES[network]
    batches = case.batches(EQUAL_STEPS)
    alone = torch_ranks.one_process(case)
    expected = [alone(*batch) for batch in batches]

    half_bytes = _bytes_of(batches[0]) // 2  # the part of the batch, which ours holds in its arena
    peaks = {
        "DDP": _both(
            torch_ranks.peak_bytes(torch_ranks.data_parallel, case, batches[:3]) + half_bytes
        ),
        "pipeline": _both(torch_ranks.peak_bytes(torch_ranks.pipeline, case, batches[:3])),
    }
    steps = {"DDP": torch_ranks.data_parallel(case), "pipeline": torch_ranks.pipeline(case)}
    ddp = peaks["DDP"]
    least_bytes = _least_bytes(case, batches[0])
    ways = {
        "ours, replicas": _Way(ddp, 2),
        "ours, layers": _Way((2 * ddp[0], 2 * ddp[1]), None),
    }
    if case.is_shared_unequally:
        first, second = (int(share * least_bytes) for share in _UNEQUAL)
        ways["ours, unequal memory"] = _Way((first, second), 2)
        ample, halves = (_AMPLE_BYTES,) * 2, dict.fromkeys(_DEVICES, case.shape[0] // 2)
        ways["ours, unequal speed"] = _Way(ample, "auto", _SLOW)
        ways["ours, unequal speed, halves"] = _Way(ample, halves, _SLOW)
    if case.is_beyond_one:
        least_bytes = _least_in_slices(case, batches[0])
        first, second = (int(share * least_bytes) for share in _UNEQUAL)
        ways["ours, unequal memory, neither alone"] = _Way((first, second), None)
    ours = {name: _ours(case, batches[0], way) for name, way in ways.items()}
    for name, step in ours.items():
        peak = step.executable.measured_peak_bytes
        peaks[name] = (peak[_DEVICES[0]], peak[_DEVICES[1]])
        steps[name] = step
    losses = {name: tuple(float(step(*b)) for b in batches) for name, step in steps.items()}
    runs = {name: partial(_run, step) for name, step in ours.items()}
    times_us = _times_us(
        {**steps, **{f"{name}, run": run for name, run in runs.items()}}, batches[0]
    )
    sides = {
        name: Side(
            *(*times_us[name], losses[name], peaks[name]),
            *(ways[name].budgets, *_planned(ours[name]), times_us[f"{name}, run"][0]),
        )
        if name in ours
        else Side(*times_us[name], losses[name], peaks[name])
        for name in steps
    }
    if rank == 0:
        seen = {name: asdict(side) for name, side in sides.items()}
        file.write_text(json.dumps({"sides": seen, "losses": expected, "least_bytes": least_bytes}))


def _ours(case: Case, batch: Batch, way: _Way) -> xe.Step:
    """Our step over both processes."""
    devices = tuple(
        xe.Device(name, target, budget, rank=rank)
        for rank, (name, target, budget) in enumerate(
            zip(_DEVICES, (_TARGET, way.second), way.budgets, strict=True)
        )
    )
    links = (xe.Link(*_DEVICES), xe.Link(*reversed(_DEVICES)))
    lowered = xe.lower(_training(case, batch), xe.Platform(devices, links))
    plan = xe.plan(
        xe.make_problem(lowered),
        objective="makespan",
        time_limit_s=LIMIT_S,
        replicas=way.replicas,
    )
    return xe.build(lowered, plan)


def _run(step: xe.Step, *_batch: torch.Tensor) -> None:
    """A step on the batch that was written last."""
    step.executable.run()


def _planned(step: xe.Step) -> tuple[float, tuple[int, ...] | None]:
    """Predicted time of a step, and the samples of each share."""
    cut = step.plan.planned.lowered.cut
    return step.plan.plan.step_us(), None if cut is None else cut.share_samples


def _training(case: Case, batch: Batch) -> xe.Training:
    return xe.training_step(
        case.module(), (batch[0],), loss="cross_entropy", optimizer=xe.SGD(RATE, momentum=0.9)
    )


def _least_bytes(case: Case, batch: Batch) -> int:
    """Below this budget no schedule of the step exists on one device, but in slices of the batch."""
    return _least_of(_alone(case, batch))


def _least_in_slices(case: Case, batch: Batch) -> int:
    """Below this budget no schedule of the step exists on one device, in slices of the batch or not."""
    lowered = _alone(case, batch)
    counts = [n for n in slicings(lowered.step) if n <= _MOST_SLICES]
    sliced = [made for n in counts if (made := lowered.in_slices(n)) is not None]
    return min(map(_least_of, (lowered, *sliced)))


def _alone(case: Case, batch: Batch) -> xe.Lowered:
    alone = xe.Platform((xe.Device("alone", _TARGET, _AMPLE_BYTES),))
    return xe.lower(_training(case, batch), alone)


def _least_of(lowered: xe.Lowered) -> int:
    return working_sets(xe.make_problem(lowered, "roofline").problem).least_bytes()["alone"]


def _times_us(steps: Mapping[str, _Timed], batch: Batch) -> dict[str, tuple[float, float]]:
    """Time and processor time of the fastest steps of each kind, which take turns: others disturb most."""
    found = dict.fromkeys(steps, (math.inf, math.inf))
    for _ in range(ROUNDS):
        for name, step in steps.items():
            dist.barrier()
            time.sleep(_SETTLE_S)
            began_s, busy_s = time.perf_counter(), time.process_time()
            step(*batch)
            took_s = (time.perf_counter() - began_s, time.process_time() - busy_s)
            both_us = torch.tensor(took_s) * 1e6
            dist.all_reduce(both_us, dist.ReduceOp.MAX)
            least_us, least_busy_us = found[name]
            found[name] = min(least_us, float(both_us[0])), min(least_busy_us, float(both_us[1]))
    return found


def _both(size_bytes: int) -> tuple[int, int]:
    """Collective: the sizes of both processes."""
    found = [torch.zeros(1, dtype=torch.int64) for _ in _DEVICES]
    dist.all_gather(found, torch.tensor([size_bytes]))
    return int(found[0]), int(found[1])


def _bytes_of(batch: Batch) -> int:
    return sum(tensor.nbytes for tensor in batch)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
