import mmap
from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings

from tests.passes.small_step import SmallStep, reference, small_problem, two_cpus
from tests.program.laid_out import everything_on, laid_out, programs, small_step
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.store.compile import compile_kernels, module_groups
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.runtime.executable import CompiledKernels, StepExecutable
from tvm_xengine.runtime.storage import Arena
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.schedule import Compute, Step, with_frees

PROBLEM = small_problem(two_cpus())
X = np.random.default_rng(0).random((4, 8), dtype="float32")
W = np.random.default_rng(1).random(32, dtype="float32")
LR = np.float32(0.1)


def kernels() -> dict[tuple[str, str], DeviceKernel]:
    names = set(extract_graph(SmallStep).kernels.values())
    return {
        (name, device.name): prepare_kernel(SmallStep[name], resolve_target(device.target or ""))
        for device in PROBLEM.platform.devices
        for name in names
    }


@pytest.fixture(scope="module")
def compiled() -> tuple[dict[tuple[str, str], DeviceKernel], list[tvm.runtime.Module]]:
    made = kernels()
    libraries = []
    for device in PROBLEM.platform.devices:
        mine = list({k.symbol: k for (_, on), k in made.items() if on == device.name}.values())
        libraries += [compile_kernels(group, group[0].target) for group in module_groups(mine)]
    return made, libraries


def executable(
    steps: Sequence[Step],
    compiled: tuple[dict[tuple[str, str], DeviceKernel], list[tvm.runtime.Module]],
) -> StepExecutable:
    program = make_step_program(small_step(compiled[0]), laid_out(PROBLEM, steps))
    return StepExecutable(program, CompiledKernels(compiled[1]), PROBLEM.platform, guard_bytes=4096)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=programs())
def test_any_schedule_computes_the_step_and_stays_inside_its_arenas(
    steps: list[Step],
    compiled: tuple[dict[tuple[str, str], DeviceKernel], list[tvm.runtime.Module]],
) -> None:
    run = executable(steps, compiled)
    loss, new_w = reference(X, float(LR), W)
    for byte in (0xA5, 0x00, 0xFF):
        run.poison(byte)
        run.write({"w": W})
        results = run.step({"x": X, "lr": LR})
        np.testing.assert_allclose(results["loss"], loss, rtol=1e-6)
        np.testing.assert_allclose(run.read_state()["w"], new_w, rtol=1e-6)
        assert all(arena.guard_is_intact(byte) for arena in run.arenas.values())


def test_recomputation_is_bit_identical_to_keeping(
    compiled: tuple[dict[tuple[str, str], DeviceKernel], list[tvm.runtime.Module]],
) -> None:
    kept = executable(everything_on("cpu"), compiled)
    again = [Compute(op, "cpu") for op in ("h", "both", "y", "h", "both", "g", "w_new")]
    recomputed = executable(again, compiled)
    state = W
    for _ in range(3):
        for run in (kept, recomputed):
            run.poison()
            run.write({"w": state})
        a, b = (run.step({"x": X, "lr": LR})["loss"] for run in (kept, recomputed))
        assert a.tobytes() == b.tobytes()
        assert kept.read_state()["w"].tobytes() == recomputed.read_state()["w"].tobytes()
        state = kept.read_state()["w"]


def test_the_arena_is_all_that_is_allocated_and_is_used_to_its_end(
    compiled: tuple[dict[tuple[str, str], DeviceKernel], list[tvm.runtime.Module]],
) -> None:
    schedule = with_frees(PROBLEM, everything_on("cpu"))
    planned = plan_arenas(PROBLEM, schedule).arena_bytes
    run = executable(everything_on("cpu"), compiled)
    run.poison()
    run.write({"w": W})
    run.step({"x": X, "lr": LR})
    assert run.measured_peak_bytes == planned
    touched = run.arenas["cpu"].touched_bytes()
    alignment = PROBLEM.platform.alignment_bytes
    assert planned["cpu"] - alignment < touched <= planned["cpu"]
    assert run.arenas["cpu_generic"].size_bytes == 0


def test_state_keeps_its_place_from_step_to_step(
    compiled: tuple[dict[tuple[str, str], DeviceKernel], list[tvm.runtime.Module]],
) -> None:
    run = executable(everything_on("cpu"), compiled)
    run.write({"w": W})
    expected = W
    for _ in range(4):
        run.step({"x": X, "lr": LR})
        expected = reference(X, float(LR), expected)[1]
    np.testing.assert_allclose(run.read_state()["w"], expected, rtol=1e-5)
    assert run.names(Role.PARAMETER) == ("w",)


def test_a_wrong_input_is_refused(
    compiled: tuple[dict[tuple[str, str], DeviceKernel], list[tvm.runtime.Module]],
) -> None:
    run = executable(everything_on("cpu"), compiled)
    with pytest.raises(ValueError, match="expected one of"):
        run.write({"nothing": X})
    with pytest.raises(ValueError, match="must have shape"):
        run.write({"x": W})


def test_views_share_the_bytes_of_their_arena() -> None:
    arena = Arena(1024, tvm.cpu(0), guard_bytes=64)
    arena.poison()
    matrix = arena.view(ArenaView("cpu", 128, (4, 8), "float32"))
    flat = arena.view(ArenaView("cpu", 128, (32,), "float32"))
    matrix.copyfrom(X)
    assert flat.numpy().tobytes() == X.tobytes()
    assert arena.touched_bytes() == 128 + 128
    arena.view(ArenaView("cpu", 1020, (8,), "uint8")).copyfrom(np.zeros(8, "uint8"))
    assert not arena.guard_is_intact()


@pytest.mark.parametrize("alignment_bytes", [64, 4096, 65536])
def test_memory_of_the_processor_is_aligned_at_no_cost_up_to_a_page(alignment_bytes: int) -> None:
    arena = Arena(256, tvm.cpu(0), alignment_bytes=alignment_bytes)
    assert arena.allocated_bytes == 256 or alignment_bytes > mmap.PAGESIZE
    tensor = arena.view(ArenaView("cpu", 0, (64,), "float32"))
    assert tensor.numpy().shape == (64,)
    assert tensor.data_ptr() % alignment_bytes == 0
