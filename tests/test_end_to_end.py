"""A network from its layers to trained parameters, under budgets that bind."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import relax

from tests.runtime.trained import train
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.data.digits import load_digits
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.planning.keep_all import budgets_for_ratio
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.solvers.result import Limits
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.step import TrainingStep

BATCH = 4
IMAGE = (16, 16)
QUICK = PlanOptions(limits=Limits(time_limit_s=1.0, gap_ratio=0.01))
Array = NDArray[np.generic]

PLATFORM = Platform(
    devices=(
        Device("cpu", "llvm -mcpu=native", kernels=("tir",)),
        Device("cpu_generic", "llvm -mcpu=x86-64"),
        Device("card", None),
    ),
    links=(
        Link("cpu", "cpu_generic", 1.0, 5.0),
        Link("cpu_generic", "cpu", 1.0, 5.0),
        Link("cpu", "card", 0.1, 50.0),
        Link("card", "cpu", 0.1, 50.0),
    ),
)


@pytest.fixture(scope="module")
def training() -> TrainingStep:
    """Six equal convolutions: forward tensors, not parameters, are what takes memory."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", (BATCH, 1, *IMAGE))
        for k in range(6):
            x = layers.conv(f"conv{k}", x, 8, 3, padding=1)
            x = layers.relu(f"relu{k}", x)
        x = layers.flatten("flat", layers.global_avg_pool("pool", x))
        return layers.linear("classes", x, 10)

    return build_training_step(build_network("chain", 0, body))


@pytest.fixture(scope="module")
def lowered(training: TrainingStep) -> LoweredStep:
    return lower_step(training.mod, PLATFORM)


def problem_on(lowered: LoweredStep, *names: str) -> Problem:
    """The problem on some of the devices; time grows with the bytes an op touches."""
    devices = tuple(d for d in PLATFORM.devices if d.name in names)
    links = tuple(k for k in PLATFORM.links if {k.src, k.dst} <= set(names))
    step = replace(
        lowered,
        platform=Platform(devices, links),
        kernels={k: v for k, v in lowered.kernels.items() if k[1] in names},
    )
    sizes = {
        kernel.symbol: OpCost(
            1.0 + 0.001 * sum(4.0 * np.prod(t.shape) for t in (*kernel.inputs, *kernel.outputs))
        )
        for kernel in step.kernels.values()
    }
    return make_problem(step, lambda _: sizes)


@pytest.fixture(scope="module")
def kept(lowered: LoweredStep) -> StepExecutable:
    """The step that keeps everything on one device."""
    return build_step(lowered, plan_keep_all(problem_on(lowered, "cpu"), "cpu"))


def batches(training: TrainingStep) -> Iterator[Mapping[str, Array]]:
    image, label = training.batch_names
    data = load_digits((1, *IMAGE))
    for epoch in count():
        for batch in data.epoch(epoch, BATCH, seed=0):
            yield {image: batch["x"], label: batch["y"], "lr": np.float32(0.02)}


def test_a_step_that_only_recomputes_is_bit_identical(
    training: TrainingStep, lowered: LoweredStep, kept: StepExecutable
) -> None:
    problem = problem_on(lowered, "cpu")
    problem = problem.with_budgets(budgets_for_ratio(problem, 0.6))
    plan = plan_schedule(problem, QUICK)
    assert plan.schedule.recomputed_ops > 0
    assert plan.schedule.transfers == 0
    assert plan.arenas.arena_bytes["cpu"] <= problem.platform.device("cpu").budget_bytes
    executable = build_step(lowered, plan)
    trace, comparison = train(
        executable, training.initial_state, batches(training), 8, reference=kept
    )
    assert comparison is not None
    assert comparison.is_identical
    assert np.isfinite(trace.losses).all()
    assert executable.measured_peak_bytes == plan.arenas.arena_bytes


@pytest.mark.parametrize("helper", ["cpu_generic", "card"])
def test_a_step_over_two_memories_agrees_with_keeping_everything(
    training: TrainingStep, lowered: LoweredStep, kept: StepExecutable, helper: str
) -> None:
    """A second CPU takes ops over; a card that only stores takes tensors."""
    problem = problem_on(lowered, "cpu", helper)
    ratio = budgets_for_ratio(problem, 0.6)
    problem = problem.with_budgets({"cpu": ratio["cpu"]})
    plan = plan_schedule(problem, QUICK)
    assert plan.schedule.transfers > 0
    executable = build_step(lowered, plan)
    _, comparison = train(executable, training.initial_state, batches(training), 5, reference=kept)
    assert comparison is not None
    assert comparison.max_rel_diff <= 1e-5
    if helper == "card":
        assert comparison.is_identical


def test_the_step_does_what_relax_itself_makes_of_the_training_graph(
    training: TrainingStep, kept: StepExecutable
) -> None:
    """Against TVM's own build of the same function: other kernels, other memory planner."""
    kept.poison()
    kept.write(training.initial_state)
    batch = next(batches(training))
    results = kept.step(batch)
    built = relax.build(training.mod, tvm.target.Target({"kind": "llvm"}))
    machine = relax.VirtualMachine(built, tvm.cpu())
    arguments = {**batch, **training.initial_state}
    expected = machine["train_step"](
        *(tvm.runtime.tensor(np.asarray(arguments[p.name])) for p in training.function.params)
    )
    np.testing.assert_allclose(results["loss"], expected[0].numpy(), rtol=1e-5)
    state = kept.read_state()
    count = len(training.result_names)
    for position, name in enumerate(training.updated_names, start=count):
        np.testing.assert_allclose(state[name], expected[position].numpy(), rtol=1e-3, atol=1e-5)


def test_nothing_is_allocated_beside_the_arenas_while_steps_run(
    training: TrainingStep, kept: StepExecutable
) -> None:
    """The process's heap, asked through glibc, does not grow over many steps."""
    heap = pytest.importorskip("ctypes").CDLL(None)
    if not hasattr(heap, "mallinfo2"):
        pytest.skip("needs glibc 2.33 or newer")
    import ctypes

    class Info(ctypes.Structure):
        _fields_ = tuple(
            (name, ctypes.c_size_t)
            for name in (
                *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks"),
                *("fsmblks", "uordblks", "fordblks", "keepcost"),
            )
        )

    heap.mallinfo2.restype = Info

    def used_bytes() -> int:
        info = heap.mallinfo2()
        return int(info.uordblks + info.hblkhd)

    kept.write(training.initial_state)
    batch = next(batches(training))  # written before every step: its bytes are used again
    for _ in range(3):
        kept.step(batch)
    growth_bytes = []
    for _ in range(5):  # what another thread of the process allocates once is in one of them
        before = used_bytes()
        for _ in range(10):
            kept.step(batch)
        growth_bytes.append(used_bytes() - before)
    assert min(growth_bytes) < 4 * 1024
