"""The C code of the example applications: on this machine, with a small network, and power that fails."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

from examples.on_device.host import (
    FAILING_SAVE,
    SAVES,
    Application,
    CodeBytes,
    Samples,
    build,
    fail_and_recover,
    losses_of,
    run,
    write_samples,
)
from tests.aot.examples import export, need_tools
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.training.losses import CrossEntropy
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.typed_labels import TypedLabels

STEPS = 8


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A folder with the package of a 16-12-4 network and its samples."""

    def body(layers: Layers):  # type: ignore[no-untyped-def]
        x = layers.input("x", (6, 16))
        return layers.linear("fc2", layers.relu("relu", layers.linear("fc1", x, 12)), 4)

    model = build_network("model", 0, body)
    recipe = Recipe(TypedLabels(CrossEntropy(), "uint8"), SGD(0.05))
    export(model, tmp_path / "model", entries=("train_step", "infer"), recipe=recipe)
    rng = np.random.default_rng(0)
    samples = Samples(rng.standard_normal((6, 16), "float32"), rng.integers(0, 4, 6))
    app = Application("A test.", nn.Identity(), samples, samples, 6, STEPS, 0.01, "", samples)
    write_samples(app, CodeBytes(1, 2), tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_device_whose_power_fails_during_a_save_ends_as_one_whose_does_not(
    application: Path,
) -> None:
    need_tools("host")
    target = embedded_target("host")
    program = build(target, application)
    lines = run(program, target, application / "first")
    losses = losses_of(lines)
    assert list(losses) == list(range(1, STEPS + 1))
    assert float(losses[STEPS]) < float(losses[1])
    assert f"Saved checkpoint {SAVES} in slot B" in lines[-3]
    assert lines[-1] == "Done."
    again = fail_and_recover(program, target, application / "first", application / "second")
    resumed = losses_of(again)
    assert min(resumed) == (FAILING_SAVE - 1) * STEPS // SAVES + 1
    assert resumed == {step: losses[step] for step in resumed}
    assert any(line.startswith("Slot A: nothing to use") for line in again)
    assert "Slot B: checkpoint 2." in again
    after_the_end = run(program, target, application / "first")
    assert f"Goes on after step {STEPS}." in after_the_end
    assert losses_of(after_the_end) == {}
