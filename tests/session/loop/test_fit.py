"""The loop: epochs, validation, checkpoints that resume bit for bit."""

import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tvm_xengine as xe
from tests.api.networks import Convolutional
from tests.conftest import Compile
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidStateError

NewStep = Callable[..., xe.Step]


@pytest.fixture(scope="module")
def new_step(compile_step: Compile) -> NewStep:
    """Equal steps of a network with dropout and Adam."""

    def new(**options: object) -> xe.Step:
        torch.manual_seed(0)
        module = Convolutional()
        module.drop.p = 0.3
        example = torch.randn(4, 1, 6, 6)
        return compile_step(
            module, example, loss="cross_entropy", optimizer=xe.Adam(0.01), **options
        )

    return new


def data(samples: int = 20) -> Data:
    random = np.random.default_rng(0)
    x = random.standard_normal((samples, 1, 6, 6)).astype("float32")
    labels = (x.mean((1, 2, 3)) > 0).astype("int64")
    return Data({"x": x[4:], "labels": labels[4:]}, {"x": x[:5], "labels": labels[:5]})


class Stopped(Exception):
    """Ends a run in its middle."""


def stop_after(steps: int) -> Callable[[xe.FitProgress], None]:
    def stop(progress: xe.FitProgress) -> None:
        if progress.step == steps:
            raise Stopped

    return stop


@pytest.mark.parametrize("kind", ["arrays", "loader"])
def test_a_resumed_run_has_the_losses_of_one_that_never_stopped(
    new_step: NewStep, tmp_path: Path, kind: str
) -> None:
    def batches() -> object:
        torch.manual_seed(3)
        if kind == "arrays":
            return data()
        tensors = [torch.from_numpy(np.array(a)) for a in data().train.values()]
        return DataLoader(TensorDataset(*tensors), batch_size=4, shuffle=True)

    whole = xe.fit(new_step(), batches(), epochs=3)
    path = tmp_path / "run.ckpt"
    often = xe.CheckpointOptions(path, every_steps=2)
    with pytest.raises(Stopped):
        xe.fit(new_step(), batches(), epochs=3, checkpoint=often, on_progress=stop_after(7))
    resuming = xe.CheckpointOptions(path, every_steps=2, resume=True)
    rest = xe.fit(new_step(budget=1.0), batches(), epochs=3, checkpoint=resuming)
    assert rest.steps_taken == whole.steps_taken == 12
    assert rest.losses == whole.losses[6:]


@pytest.mark.parametrize(
    "moment", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 2, 4, 5))]
)
def test_an_interrupted_run_leaves_a_checkpoint_of_its_last_step(
    new_step: NewStep, tmp_path: Path, moment: int
) -> None:
    """The interrupt comes from another thread, wherever the run is after a step."""
    step, whole = new_step(), xe.fit(new_step(), data(), epochs=4)
    main, path = threading.get_ident(), tmp_path / "run.ckpt"

    def interrupt() -> None:
        while step.steps_taken <= moment:
            time.sleep(1e-5)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        while True:  # a run may end before the interrupt arrives
            xe.fit(step, data(), epochs=4, checkpoint=xe.CheckpointOptions(path, resume=True))
    rest = xe.fit(new_step(), data(), epochs=4, checkpoint=xe.CheckpointOptions(path, resume=True))
    assert rest.steps_taken == whole.steps_taken
    assert rest.losses == whole.losses[len(whole.losses) - len(rest.losses) :]


def test_validation_is_averaged_over_the_samples_that_count(new_step: NewStep) -> None:
    step = new_step()
    samples = data()
    found = xe.fit(step, samples, epochs=1).validation[0]
    module = Convolutional()
    step.load_into(module)
    module.eval()
    x, labels = (torch.from_numpy(np.array(a)) for a in samples.validation.values())
    with torch.no_grad():
        scores = module(x)
    assert found["loss"] == pytest.approx(
        torch.nn.functional.cross_entropy(scores, labels).item(), rel=1e-4
    )
    assert found["accuracy"] == pytest.approx((scores.argmax(1) == labels).float().mean().item())


def test_a_checkpoint_of_another_model_or_a_torn_one_changes_nothing(
    new_step: NewStep, compile_step: Compile, tmp_path: Path
) -> None:
    step = new_step()
    before = step.state_dict()
    path = tmp_path / "other.ckpt"
    other = compile_step(torch.nn.Linear(6, 5), torch.randn(4, 6), optimizer="sgd")
    other.save(path)
    with pytest.raises(InvalidStateError, match="another model"):
        step.load(path)
    step.save(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidStateError, match="is no checkpoint"):
        step.load(path)
    with pytest.raises(InvalidStateError, match="there is no checkpoint"):
        step.load(tmp_path / "absent.ckpt")
    for name, value in step.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_history_of_a_run_is_a_document() -> None:
    run = xe.FitResult((2.0, 1.5), ({"loss": 1.25},), steps_taken=2)
    document = {"losses": [2.0, 1.5], "validation": [{"loss": 1.25}], "steps_taken": 2}
    assert json.loads(json.dumps(run.as_document())) == document
