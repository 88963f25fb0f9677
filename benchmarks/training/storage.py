"""``python -m benchmarks.training.storage [NETWORK...]``: steps that page to a file, against PyTorch.

Everything that is measured runs in a process of its own, whose resident memory the kernel counts.
Nothing else may run.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import tvm_xengine as xe
from benchmarks.record import record
from benchmarks.training.step_networks import Case, module_of
from benchmarks.training.torch_memory import RATE, TorchStep
from tests.frontends.torch.networks import ResNet18
from tests.networks.models.unet import UNet
from tvm_xengine.scheduling.schedule import Transfer
from tvm_xengine.session.plans.replan import MOST_STEPS

THREADS = 2
STEPS = 8
"""Of which the fastest counts: other machines share the processor with this one."""
LIMIT_S = 60.0
STORE_BYTES = 64 << 30
BLOCK_BYTES = 4096
"""With tensors in whole blocks of a disk, the file goes past the system's cache."""


_VGG19 = (64, 64, 0, 128, 128, 0, *4 * (256,), 0, *4 * (512,), 0, *4 * (512,), 0)
"""Channels of its convolutions; 0 is a pooling (Simonyan and Zisserman 2015, table 1, E)."""


def _vgg19() -> nn.Module:
    """For images of 32 x 32, with one linear layer: one of those for 224 x 224 updates 1.2 GiB at once."""
    layers, before = list[nn.Module](), 3
    for channels in _VGG19:
        if channels:
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
            before = channels
        else:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before, 10))


@dataclass(frozen=True)
class Budget:
    """A share of PyTorch's peak, or of the smallest budget without a file; the smaller one."""

    of_torch: float
    of_smallest: float = float("inf")


CASES: Mapping[str, tuple[Case, Budget]] = {
    "vgg19": (Case("vgg19", _vgg19, lambda m: [*m], (16, 3, 32, 32)), Budget(0.5)),
    "unet": (
        Case("unet", lambda: UNet(2, 1, 2, width=64, depth=4), lambda m: [*m.down], (1, 1, 64, 64)),
        Budget(0.5),
    ),
    "resnet18": (
        Case("resnet18", ResNet18, lambda m: [*m.children()], (16, 3, 32, 32)),
        Budget(0.5, of_smallest=0.8),
    ),
}


def main(networks: Sequence[str]) -> None:
    """Record a row for each network."""
    for network in networks or CASES:
        record("storage", _row(network))


def _row(network: str) -> Mapping[str, str | int | float | None]:
    theirs = _apart(_theirs, network)
    without_file_bytes = int(_apart(_smallest, network)["bytes"])
    budget = CASES[network][1]
    share_bytes = budget.of_torch * theirs["peak_bytes"]
    budget_bytes = int(min(share_bytes, budget.of_smallest * without_file_bytes))
    ours = _apart(_ours, network, budget_bytes)
    return {
        "network": network,
        "torch_mib": _mib(theirs["peak_bytes"]),
        "torch_resident_mib": _mib(theirs["resident_bytes"]),
        "state_mib": _mib(ours["state_bytes"]),
        "without_file_mib": _mib(without_file_bytes),
        "budget_mib": _mib(budget_bytes),
        "resident_mib": _mib(ours["resident_bytes"]),
        "copies_mib": _mib(ours["copied_bytes"]),
        "copies_hidden": round(ours["hidden"], 2),
        "predicted_by_measured": round(ours["predicted_us"] / ours["step_us"], 2),
        "first_ms": round(ours["first_us"] / 1e3, 1),
        "step_ms": round(ours["step_us"] / 1e3, 1),
        "by_torch": round(ours["step_us"] / theirs["step_us"], 2),
        "loss_error": float(f"{abs(ours['loss'] / theirs['loss'] - 1):.1e}"),
    }


def _apart(function: Callable[..., Mapping[str, float]], *given: object) -> Mapping[str, float]:
    """What a function returns in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *given).result()


def _theirs(network: str) -> Mapping[str, float]:
    """PyTorch's step: its peak by its allocator, and what the process takes for it."""
    torch.set_num_threads(THREADS)
    TorchStep(nn.Linear(4, 4), torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))()
    before_bytes = _resident_bytes()
    step = _torch_step(network)
    losses, times_us = _run(step)
    resident_bytes = _peak_resident_bytes() - before_bytes
    return {
        "peak_bytes": step.peak_bytes(),
        "resident_bytes": resident_bytes,
        "step_us": min(times_us),
        "loss": losses[-1],
    }


def _smallest(network: str) -> Mapping[str, float]:
    """The smallest budget without a file in which a plan is known."""
    step = _torch_step(network)
    found = xe.estimate(step.module, step.inputs, **_options())
    return {"bytes": found.smallest_bytes}


def _ours(network: str, budget_bytes: int) -> Mapping[str, float]:
    """Our step with its state in a file: its losses, times and what the process takes for it."""
    theirs = _torch_step(network)
    with tempfile.TemporaryDirectory() as folder:
        devices = (
            xe.Device("cpu", f"llvm -mcpu=native -num-cores={THREADS}", budget_bytes),
            xe.Device("disk", None, STORE_BYTES, folder=folder),
        )
        links = (xe.Link("cpu", "disk"), xe.Link("disk", "cpu"))
        platform = xe.Platform(devices, links, home="disk", alignment_bytes=BLOCK_BYTES)
        training = xe.training_step(theirs.module, theirs.inputs, **_options())
        problem = xe.make_problem(xe.lower(training, platform))
        plan = xe.plan(problem, objective="makespan", time_limit_s=LIMIT_S)
        gc.collect()
        before_bytes = _resident_bytes()
        step = xe.build(problem.lowered, plan)
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
        losses, times_us = _run(lambda: float(step.step(theirs.inputs, theirs.labels)))
        resident_bytes = _peak_resident_bytes() - before_bytes
        xe.fit(step, [(theirs.inputs, theirs.labels)], epochs=MOST_STEPS, replan=True)
        with step.timed() as marks:
            _, again_us = _run(lambda: float(step.step(theirs.inputs, theirs.labels)))
            intervals_us = dict(marks.intervals_us)
    schedule, graph = step.plan.plan.schedule, plan.plan.problem.graph
    copied = {k: s for k, s in enumerate(schedule.steps) if isinstance(s, Transfer)}
    length = {k: end - begin for k, (begin, end) in intervals_us.items()}
    copies_us = sum(length[k] for k in copied)
    kernels_us = sum(length.values()) - copies_us
    last_us = max(end for _, end in intervals_us.values())
    state = [t.size_bytes for t in graph.tensors if t.role.is_persistent]
    return {
        "resident_bytes": resident_bytes,
        "state_bytes": sum(state),
        "copied_bytes": sum(graph.tensor[s.tensor].size_bytes for s in copied.values()),
        "hidden": (copies_us + kernels_us - last_us) / copies_us,
        "predicted_us": step.plan.plan.step_us(),
        "first_us": min(times_us),
        "step_us": min(again_us),
        "loss": losses[-1],
    }


def _options() -> Mapping[str, object]:
    return {"loss": "cross_entropy", "optimizer": xe.SGD(RATE, momentum=0.9)}


def _torch_step(network: str) -> TorchStep:
    torch.manual_seed(0)
    case = CASES[network][0]
    module = module_of(case)
    inputs = case.inputs
    with torch.no_grad():
        logits = module.eval()(inputs)
    labels = torch.randint(0, logits.shape[1], (logits.shape[0], *logits.shape[2:]))
    return TorchStep(module.train(), inputs, labels)


def _run(step: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Losses and times of some steps on the same batch."""
    losses, times_us = [], []
    for _ in range(STEPS):
        begun_s = time.perf_counter()
        losses.append(float(step()))  # type: ignore[arg-type]
        times_us.append((time.perf_counter() - begun_s) * 1e6)
    return losses, times_us


def _resident_bytes() -> int:
    return _status("VmRSS")


def _peak_resident_bytes() -> int:
    return _status("VmHWM")


def _status(key: str) -> int:
    """A figure of the kernel about this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def _mib(size_bytes: float) -> float:
    return round(size_bytes / 2**20, 1)


if __name__ == "__main__":
    main(sys.argv[1:])
