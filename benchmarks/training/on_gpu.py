"""``python -m benchmarks.training.on_gpu [NETWORK...]``: steps on a GPU against PyTorch's there.

PyTorch's memory is the most that its allocator has handed out in a step; ours is the planned arena, beside
which a step allocates nothing on the GPU. Half of PyTorch's memory goes with a pool in the host's; so does
a third, where parameters and the optimizer's state have their home.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import tvm_xengine as xe
from benchmarks.record import Cell, record
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


def _rows(case: Case) -> Iterator[Mapping[str, Cell]]:
    """A row for each kind of step, as soon as it has taken turns with PyTorch's."""
    torch.manual_seed(0)
    module, inputs = module_of(case), case.inputs
    with torch.no_grad():
        shape = module(inputs).shape
    labels = torch.randint(0, shape[1], (shape[0], *shape[2:]))
    eager, peak_bytes = _eager(module_of(case), inputs, labels, tf32=True)
    exact, exact_bytes = _eager(module_of(case), inputs, labels, tf32=False)
    times_ms = _times_ms({"PyTorch": eager, "without TF32": exact})
    yield _row(case, "PyTorch", times_ms["PyTorch"], times_ms["PyTorch"], peak_bytes)
    yield _row(
        case, "PyTorch, without TF32", times_ms["without TF32"], times_ms["PyTorch"], exact_bytes
    )
    for kind, options in _kinds(peak_bytes).items():
        try:
            step = xe.compile(
                module, inputs, loss="cross_entropy", optimizer=xe.SGD(RATE, momentum=0.9),
                costs="measured", time_limit_s=LIMIT_S, **options,
            )  # fmt: skip
        except xe.NoScheduleError as error:
            sys.stdout.write(f"{case.name}, {kind}: {error}\n")
            continue
        step(inputs, labels)
        times_ms = _times_ms({"PyTorch": eager, "ours": step.executable.run})
        plan = step.plan.plan
        arena_bytes = plan.arenas.arena_bytes["gpu"]
        yield {
            **_row(case, f"ours, {kind}", times_ms["ours"], times_ms["PyTorch"], arena_bytes),
            "predicted_ms": round(plan.step_us() / 1e3, 2),
            "recomputed": plan.schedule.recomputed_ops,
            "copies": plan.schedule.transfers,
        }


def _kinds(peak_bytes: int) -> Mapping[str, Mapping[str, Any]]:
    """Options of our steps, given what PyTorch's takes."""
    devices = (_GPU, xe.Device("ram", None))
    links = (xe.Link("gpu", "ram"), xe.Link("ram", "gpu"))
    host = 1 << 34  # bytes, as good as no limit
    return {
        "all kept": {"platform": xe.Platform((_GPU,))},
        "half": {
            "platform": xe.Platform(devices, links),
            "budget": {"gpu": peak_bytes // 2, "ram": host},
            "objective": "makespan",
        },
        "a third, state in the host": {
            "platform": xe.Platform(devices, links, home="ram"),
            "budget": {"gpu": peak_bytes // 3, "ram": host},
            "objective": "makespan",
        },
    }


def _row(
    case: Case, step: str, time_ms: float, pytorch_ms: float, peak_bytes: int
) -> Mapping[str, Cell]:
    return {
        "network": case.name,
        "gpu": torch.cuda.get_device_name(),
        "step": step,
        "ms": round(time_ms, 2),
        "ratio": round(time_ms / pytorch_ms, 2),
        "peak_mib": round(peak_bytes / 2**20, 1),
    }


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


if __name__ == "__main__":
    main(sys.argv[1:])
