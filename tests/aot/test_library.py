"""Libraries for TVM's virtual machine: here, and for aarch64 under an emulator."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from tests.aot.aarch64_runtime import aarch64_runtime
from tests.aot.examples import MODELS, attention, need_tools, tiny_mlp
from tvm_xengine.aot.check.reference import host_step
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.plan.kernels import Backend
from tvm_xengine.aot.plan.regions import Region
from tvm_xengine.aot.vm_library.export import LibraryReport, export_library
from tvm_xengine.errors import ExportError, InvalidPlatformError, NoScheduleError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.solvers.result import Limits
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.optimizers import SGD

MOMENTUM = SGD(momentum=0.9)


def export(
    model: ForwardModel, folder: Path, target: str, arena_bytes: int = 2**22
) -> LibraryReport:
    training = build_training_step(model, optimizer=MOMENTUM)
    memory, plan = Region("memory", arena_bytes), PlanOptions(limits=Limits(3.0))
    options = ExportOptions(target, (memory,), Backend.VM, plan=plan)
    return export_library(model, training, options, folder)


def selftest(
    report: LibraryReport, compiler: str, tvm_folder: Path, ffi_folder: Path, run: list[str]
) -> subprocess.CompletedProcess[str]:
    folder, name = report.directory, report.library.name
    libraries = [tvm_folder / "lib", ffi_folder / "lib"]
    command = [compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]
    command += [str(folder / f"{name}_selftest.c"), str(folder / f"{name}.c"), f"-I{folder}"]
    command += [f"-I{ffi_folder / 'include'}", *(f"-L{path}" for path in libraries)]
    command += ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
    command += ["-ltvm_runtime", "-ltvm_ffi", "-o", str(folder / "selftest")]
    subprocess.run(command, check=True)
    where = "LD_LIBRARY_PATH=" + ":".join(str(path) for path in libraries)
    files = [str(folder / file) for file in ("selftest", f"{name}.so", f"{name}_state.bin")]
    return subprocess.run([*run, where, *files], capture_output=True, text=True, check=False)


def losses_of(done: subprocess.CompletedProcess[str]) -> list[float]:
    return [float(line) for line in done.stdout.split()]


@pytest.mark.slow
def test_c_loader_on_this_machine(tmp_path: Path) -> None:
    need_tools("host")
    whole = export(attention(), tmp_path / "whole", "host")
    tight = whole.keep_all_bytes - 2048
    report = export(attention(), tmp_path / "out", "host", tight)
    assert report.library.arena_bytes <= tight
    packages = [Path(tvm.__file__).parent, Path(tvm_ffi.__file__).parent]
    done = selftest(report, "gcc", *packages, ["env"])
    assert done.returncode == 0, done.stderr
    assert losses_of(done) == pytest.approx(report.expected.losses, rel=1e-5)


def masked(given: str, batch: int = 2) -> ForwardModel:
    """A network with a tensor constant, which training and evaluation number on their own."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.input(given, (batch, 16))
        mask = np.random.default_rng(0).random((batch, 16), dtype="float32")
        masked = layers.emit("masked", relax.op.multiply(x, relax.const(mask)))
        return layers.linear("fc", masked, 4)

    return build_network("masked", 0, body)


@pytest.mark.parametrize("given", ["x", "arena", "random", "step", "argv"])
def test_constants_of_the_evaluation_are_part_of_the_library(given: str, tmp_path: Path) -> None:
    """The input may be called as variables of the self-test are."""
    need_tools("host")
    report = export(masked(given), tmp_path / "out", "host")
    assert list(report.library.eval_inputs) == [given]
    packages = [Path(tvm.__file__).parent, Path(tvm_ffi.__file__).parent]
    done = selftest(report, "gcc", *packages, ["env"])  # compares the evaluation, too
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.slow
def test_python_loader_in_a_fresh_process(tmp_path: Path) -> None:
    need_tools("host")
    report = export(tiny_mlp(), tmp_path / "out", "host")
    text = """
import numpy as np
from tiny_mlp_step import Step
step, random = Step(), np.random.default_rng(0)
def batch():
    return {"x": random.normal(size=(2, 16)).astype("float32"), "labels": random.integers(0, 4, 2)}
for _ in range(3):
    step.train(**batch(), lr=0.1)
kept = step.state()
again = Step()
again.load(kept)
given = batch()
print(step.train(**given, lr=0.1)["loss"], again.train(**given, lr=0.1)["loss"])
print(*step.eval(x=given["x"]).ravel())
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, cwd=report.directory
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.strip().splitlines()
    here, continued = map(float, first.split())
    assert here == continued
    training = build_training_step(tiny_mlp(), optimizer=MOMENTUM)
    reference = host_step(training)
    reference.write(training.initial_state)
    random = np.random.default_rng(0)
    for _ in range(4):
        x, labels = random.normal(size=(2, 16)).astype("float32"), random.integers(0, 4, 2)
        given = {"x": x, "labels": labels, "lr": np.asarray(0.1, "float32")}
        loss = float(reference.step(given)["loss"])
    assert here == pytest.approx(loss, rel=1e-5)
    state = reference.read_state()
    hidden = np.maximum(x @ state["fc1_weight"].T + state["fc1_bias"], 0)
    output = hidden @ state["fc2_weight"].T + state["fc2_bias"]
    np.testing.assert_allclose([float(v) for v in second.split()], output.ravel(), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["tiny_mlp", "lenet", "attention", "ds_cnn"])
def test_c_loader_on_aarch64(network: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    need_tools("aarch64")
    assert pytestconfig.cache is not None
    packages = aarch64_runtime(Path(pytestconfig.cache.mkdir("aarch64_runtime")))
    report = export(MODELS[network](), tmp_path / "out", "aarch64")
    run = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", "-E"]
    compiler = shutil.which("aarch64-linux-gnu-gcc")
    assert compiler is not None
    done = selftest(report, compiler, packages / "tvm", packages / "tvm_ffi", run)
    assert done.returncode == 0, (done.stdout, done.stderr)
    expected = report.expected
    for loss, right, allowed in zip(
        losses_of(done), expected.losses, expected.tolerances, strict=True
    ):  # more than 1e-5 where rounding is amplified
        assert loss == pytest.approx(right, rel=allowed, abs=allowed)


def test_bad_orders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlatformError, match="operating system"):
        export(tiny_mlp(), tmp_path / "out", "cortex-m4")
    with pytest.raises(NoScheduleError):
        export(tiny_mlp(), tmp_path / "out", "host", 512)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("kept")  # an empty folder is free
    with pytest.raises(ExportError, match="--force"):
        export(tiny_mlp(), tmp_path / "there", "host")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
