"""How long does a training step take, against PyTorch in the same run?

Forward, loss, backward and the optimizer's update, on the threads of ``TVM_NUM_THREADS`` and
``OMP_NUM_THREADS`` (set both). The steps run in turns; what counts is the fastest, by the wall clock
with several threads and by CPU time with one. Run with ``-s`` to see the rows; `-k` chooses.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.networks.gpt import GPT  # noqa: E402
from tests.networks.torchvision_models import torchvision_models  # noqa: E402
from tests.networks.unet import UNet  # noqa: E402
from tvm_xengine.codegen.kernel_store import KernelStore  # noqa: E402
from tvm_xengine.compiler import (  # noqa: E402
    LoweredStep,
    build_step,
    lower_step,
    make_problem,
    measured_costs,
    plan_keep_everything,
)
from tvm_xengine.cost_models.measurements import MeasurementCache, default_cache_path  # noqa: E402
from tvm_xengine.cost_models.timing import Effort  # noqa: E402
from tvm_xengine.errors import NoScheduleError  # noqa: E402
from tvm_xengine.frontends.torch import from_torch_export  # noqa: E402
from tvm_xengine.graph import Role  # noqa: E402
from tvm_xengine.planner import Plan, PlanOptions, budgets_for_ratio, plan_schedule  # noqa: E402
from tvm_xengine.platform import Device, Platform  # noqa: E402
from tvm_xengine.problem import Problem  # noqa: E402
from tvm_xengine.runtime.executable import StepExecutable  # noqa: E402
from tvm_xengine.solvers.result import Limits  # noqa: E402
from tvm_xengine.training.build import build_training_step  # noqa: E402

ROUNDS = 5
THREADS = int(os.environ.get("TVM_NUM_THREADS", "1"))
RATE = 0.01
MOST_TIMES_SLOWER = 1.2
MOST_TIMES_SLOWER_GENERATED = 4.0
HALF = 0.5


@dataclass(frozen=True)
class Case:
    """A network and the shape of its batch; with a vocabulary it reads tokens."""

    name: str
    module: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]
    vocabulary: int | None = None

    @property
    def inputs(self) -> torch.Tensor:
        if self.vocabulary is None:
            return torch.randn(self.shape)
        return torch.randint(0, self.vocabulary, self.shape)


def vision(name: str, batch: int) -> Case:
    return Case(
        name, lambda: getattr(torchvision_models(), name)(num_classes=1000), (batch, 3, 224, 224)
    )


CASES = [
    vision("resnet18", 8),
    vision("vgg19", 2),
    Case("unet", lambda: UNet(2, 1, 2, width=64, depth=4), (2, 1, 128, 128)),
    vision("mobilenet_v2", 8),
    Case("gpt", lambda: GPT(128, tokens=256, width=256, heads=4, blocks=4), (8, 128), 256),
]

Step = Callable[[], object]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_step_keeps_up_with_pytorch(case: Case) -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    module = without_dropout(case.module().train())
    inputs = case.inputs
    with torch.no_grad():
        logits = module(inputs)
    labels = torch.randint(0, logits.shape[1], (logits.shape[0], *logits.shape[2:]))
    steps: dict[str, Step] = {"eager": eager_step(module, inputs, labels)}
    if os.environ.get("WITH_TORCH_COMPILE"):
        steps["torch.compile"] = eager_step(torch.compile(module), inputs, labels)
    arenas: dict[str, int] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = from_torch_export(torch.export.export(module, (inputs,)), name=case.name)
    training = build_training_step(model)
    for name, sources in (("onednn", ("onednn", "tir")), ("tir", ("tir",))):
        device = Device("cpu", f"llvm -mcpu=native -num-cores={THREADS}", kernels=sources)
        lowered = lower_step(training.mod, Platform((device,)))
        problem = problem_of(lowered)
        plans = {name: plan_keep_everything(problem, "cpu")}
        if name == "onednn" and (half := plan_at(problem, HALF)) is not None:
            plans[f"{name}, half memory"] = half
        for label, plan in plans.items():
            executable = build_step(lowered, plan, store=store())
            executable.write(training.initial_state)
            steps[label] = our_step(executable, inputs, labels)
            arenas[label] = plan.arenas.arena_bytes["cpu"]
    times_ms = time_in_turns_ms(steps)
    for label, time_ms in times_ms.items():
        ratio = time_ms / times_ms["eager"]
        memory = f"arena {arenas[label] / 2**20:7.1f} MiB" if label in arenas else ""
        sys.stdout.write(
            f"\n{case.name:14} {label:20} {time_ms:9.1f} ms  ratio {ratio:5.2f}  {memory}"
        )
    assert times_ms["onednn"] <= MOST_TIMES_SLOWER * times_ms["eager"]
    assert times_ms["tir"] <= MOST_TIMES_SLOWER_GENERATED * times_ms["eager"]


def without_dropout(module: torch.nn.Module) -> torch.nn.Module:
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return module


def eager_step(module: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Step:
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(inputs), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def our_step(executable: StepExecutable, inputs: torch.Tensor, labels: torch.Tensor) -> Step:
    """Like PyTorch's step, it reads the batch anew and returns the loss."""
    (reads,) = [name for name in executable.names(Role.BATCH) if name != "labels"]
    views = executable.interface.inputs
    given = {
        reads: inputs.numpy(),
        "labels": labels.numpy().reshape(views["labels"].shape),
        "lr": np.asarray(RATE, dtype=np.float32),
    }
    return lambda: executable.step(given)


def store() -> KernelStore:
    return KernelStore(default_cache_path().parent / "kernels")


def problem_of(lowered: LoweredStep) -> Problem:
    cache = MeasurementCache(default_cache_path())
    effort = Effort(rounds=1)
    return make_problem(lowered, lowered.platform, measured_costs(cache, effort, store=store()))


def plan_at(problem: Problem, ratio: float) -> Plan | None:
    """The plan, None where a single op needs more memory than that."""
    limited = problem.with_budgets(budgets_for_ratio(problem, ratio))
    limits = Limits(time_limit_s=60.0, gap_ratio=0.01)
    try:
        return plan_schedule(limited, PlanOptions(limits=limits))
    except NoScheduleError:
        return None


def time_in_turns_ms(steps: Mapping[str, Step]) -> dict[str, float]:
    """The fastest of some rounds of each step."""
    clock = time.process_time_ns if THREADS == 1 else time.perf_counter_ns
    best = dict.fromkeys(steps, float("inf"))
    for step in steps.values():
        step()
    for _ in range(ROUNDS):
        for name, step in steps.items():
            started_ns = clock()
            step()
            best[name] = min(best[name], (clock() - started_ns) / 1e6)
    return best
