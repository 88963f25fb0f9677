"""LeNet learns the digits on an emulated Cortex-M7, and goes on on this machine."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.aot.examples import export, need_tools
from tvm_xengine.aot.check.emulation import EMULATORS, Build, build_program
from tvm_xengine.aot.check.reference import host_step
from tvm_xengine.aot.package.checkpoint_file import read_checkpoint
from tvm_xengine.compiler.forward import build_forward
from tvm_xengine.data.digits import load_digits
from tvm_xengine.frontends import zoo
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.forward.evaluation import evaluation_module
from tvm_xengine.training.optimizers import SGD

BATCH = 16


def write_batches(path: Path, batches: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    with path.open("wb") as file:
        for images, labels in batches:
            file.write(images.astype("<f4").tobytes() + labels.astype("<i8").tobytes())


@pytest.mark.slow
def test_an_epoch_on_a_cortex_m7_is_worth_one_here(tmp_path: Path) -> None:
    need_tools("cortex-m7")
    model = zoo.build("lenet", batch_size=BATCH)
    data = load_digits((1, 28, 28))
    steps = data.batches_per_epoch(BATCH)
    batches = [(batch["x"], batch["y"]) for batch in data.epoch(0, BATCH, seed=0)]
    full = [batch for batch, counted in data.validation_batches(BATCH) if counted == BATCH]
    tests = [(batch["x"], batch["y"]) for batch in full]
    count = len(tests)
    report = export(
        model, tmp_path / "out", target="cortex-m7", regions="sram=3MiB", optimizer="momentum"
    )
    write_batches(tmp_path / "batches.bin", batches)
    write_batches(tmp_path / "tests.bin", tests)
    flags = (
        f"-DSTEPS={steps}",
        f"-DTEST_STEPS={count}",
        f"-DBATCH={BATCH}",
        "-DXE_SEMIHOSTING_FILES",
    )
    build = Build(Path(__file__).parent / "train_digits.c", flags)
    build_program(report.directory, report.package, build, tmp_path / "firmware")
    command = [*EMULATORS["cortex-m7"].command, str(tmp_path / "firmware")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, (done.returncode, done.stderr)
    accuracy = int(done.stdout) / (count * BATCH)

    training = build_training_step(model, optimizer=SGD(momentum=0.9))
    here = host_step(training)
    here.write(training.initial_state)
    rate = np.asarray(0.01, "float32")
    for images, labels in batches:
        here.step({"x": images, "labels": labels, "lr": rate})
    saved = read_checkpoint(tmp_path / "model.bin").tensors
    assert saved["setting/lr"] == np.float32(0.01)
    state = {tensor.name: saved[tensor.saved_name] for tensor in report.package.state}
    for name, value in here.read_state().items():
        np.testing.assert_allclose(state[name], value, rtol=1e-2, atol=1e-3)
    forward = build_forward(evaluation_module(model), 1, Platform((Device("cpu", "llvm"),)))
    forward.write({name: here.read_state()[name] for name in forward.names(Role.PARAMETER)})
    hits = [
        np.asarray(forward.step({"x": images})["output"]).argmax(axis=-1) == labels
        for images, labels in tests
    ]
    assert accuracy == pytest.approx(float(np.mean(hits)), abs=0.01)
    assert accuracy > 0.5  # a tenth is chance

    here.write(state)  # the checkpoint goes on here
    losses = [
        float(here.step({"x": images, "labels": labels, "lr": rate})["loss"])
        for images, labels in batches
    ]
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
