"""``python -m benchmarks.training.on_gpu [NETWORK...]``: steps on a GPU against PyTorch's there.

PyTorch's memory is the most that its allocator has handed out in a step; ours is the planned arena, beside
which a step allocates nothing on the GPU. Half of PyTorch's memory goes with a pool in the host's; so does
a third, where parameters and the optimizer's state have their home.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

import tvm_xengine as xe
from benchmarks.record import record
from benchmarks.training.step_networks import CASES, Case, module_of

ROUNDS, STEPS = 5, 5
LIMIT_S = 10.0
RATE = 0.01
_GPU = xe.Device("gpu", "cuda")


def main(networks: Sequence[str]) -> None:
    """Record a row for each network and each kind of step."""
    for case in CASES:
        if not networks or case.name in networks:
            for row in _rows(case):
                record("on_gpu", row)


def _rows(case: Case) -> list[Mapping[str, str | int | float | None]]:
    torch.manual_seed(0)
    module, inputs = module_of(case), case.inputs
    with torch.no_grad():
        shape = module(inputs).shape
    labels = torch.randint(0, shape[1], (shape[0], *shape[2:]))
    steps: dict[str, Callable[[], object]] = {}
    rows: dict[str, Mapping[str, object]] = {}
    for kind, tf32 in (("PyTorch, without TF32", False), ("PyTorch", True)):
        steps[kind], peak_bytes = _eager(module_of(case), inputs, labels, tf32=tf32)
        rows[kind] = {"peak_mib": _mib(peak_bytes)}
    devices = (_GPU, xe.Device("ram", None))
    links = (xe.Link("gpu", "ram"), xe.Link("ram", "gpu"))
    kinds: Mapping[str, Mapping[str, object]] = {
        "ours, all kept": {"platform": xe.Platform((_GPU,))},
        "ours, half": {
            "platform": xe.Platform(devices, links),
            "budget": {"gpu": peak_bytes // 2, "ram": 1 << 34},
            "objective": "makespan",
        },
        "ours, a third, state in the host": {
            "platform": xe.Platform(devices, links, home="ram"),
            "budget": {"gpu": peak_bytes // 3, "ram": 1 << 34},
            "objective": "makespan",
        },
    }
    for kind, options in kinds.items():
        try:
            step = xe.compile(
                module, inputs, loss="cross_entropy", optimizer=xe.SGD(RATE, momentum=0.9),
                costs="measured", time_limit_s=LIMIT_S, **options,
            )  # fmt: skip
        except xe.NoScheduleError as error:
            print(f"{case.name}, {kind}: {error}")
            continue
        step(inputs, labels)
        steps[kind] = step.executable.run
        plan = step.plan.plan
        rows[kind] = {
            "peak_mib": _mib(plan.arenas.arena_bytes["gpu"]),
            "predicted_ms": round(plan.step_us() / 1e3, 2),
            "recomputed": plan.schedule.recomputed_ops,
            "copies": plan.schedule.transfers,
        }
    times_ms = _times_ms(steps)
    return [
        {
            "network": case.name,
            "gpu": torch.cuda.get_device_name(),
            "step": kind,
            "ms": round(times_ms[kind], 2),
            "ratio": round(times_ms[kind] / times_ms["PyTorch"], 2),
            **row,
        }
        for kind, row in rows.items()
    ]


def _eager(
    module: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, *, tf32: bool
) -> tuple[Callable[[], object], int]:
    before_bytes = torch.cuda.memory_allocated()
    module, inputs, labels = module.cuda(), inputs.cuda(), labels.cuda()
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)

    def step() -> None:
        torch.backends.cudnn.allow_tf32 = tf32
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return step, torch.cuda.max_memory_allocated() - before_bytes


def _times_ms(steps: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median of some rounds, in which the kinds of steps take turns."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            step()
            torch.cuda.synchronize()
            begin_s = time.perf_counter()
            for _ in range(STEPS):
                step()
            torch.cuda.synchronize()
            found[name].append((time.perf_counter() - begin_s) * 1e3 / STEPS)
    return {name: statistics.median(times) for name, times in found.items()}


def _mib(size_bytes: int) -> float:
    return round(size_bytes / 2**20, 1)


if __name__ == "__main__":
    main(sys.argv[1:])
