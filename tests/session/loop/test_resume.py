"""A checkpoint is resumed under other plans, and with the data in the order of the run."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tvm_xengine as xe
from tests.conftest import Compile
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.scheduling.platform import generated_only
from tvm_xengine.state.checkpoint import Position, save_step


class Residual(nn.Module):
    """Linear layers with norms, each with a connection around it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(5)])
        self.norms = nn.ModuleList([nn.LayerNorm(6) for _ in range(5)])
        self.out = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + torch.tanh(layer(norm(x)))
        return self.out(x)


class Convolutional(nn.Module):
    """Convolutions in a row, with batch norms."""

    def __init__(self) -> None:
        super().__init__()
        pairs = [(1, 4), (4, 4), (4, 4), (4, 4)]
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.GELU())
            for a, b in pairs
        ]
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.body(x).mean((2, 3)))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], float]] = {
    "convolutional": (Convolutional, (6, 1, 12, 12), 0.7),
    "residual": (Residual, (64, 6), 0.7),
}
"""Each with the shape of a batch, and a budget in which something is recomputed."""
OPTIMIZERS = {"momentum": xe.SGD(0.05, momentum=0.9), "adam": xe.Adam(0.01)}
STEPS = 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "optimizer"),
    [
        ("convolutional", "adam"),
        ("residual", "momentum"),
        ("convolutional", "momentum"),
        ("residual", "adam"),
    ],
)
def test_a_checkpoint_goes_on_under_another_budget_and_on_another_platform(
    compile_step: Compile, tmp_path: Path, network: str, optimizer: str
) -> None:
    make, shape, ratio = NETWORKS[network]
    torch.manual_seed(0)
    module = make()
    batches = [(torch.randn(shape), torch.randint(0, 5, shape[:1])) for _ in range(2 * STEPS)]

    def new(**options: object) -> xe.Step:
        chosen = OPTIMIZERS[optimizer]
        return compile_step(
            module, batches[0][0], loss="cross_entropy", optimizer=chosen, **options
        )

    # A library's kernels need memory of their own, and where they have none others run.
    generated = generated_only(xe.processor())
    step, path = new(platform=generated), tmp_path / "run.ckpt"
    for batch in batches[:STEPS]:
        step(*batch)
    step.save(path)
    expected = [float(step(*batch)) for batch in batches[STEPS:]]
    state, slots = step.state_dict(), step.saved_state()

    tight = new(budget=ratio, platform=generated)
    assert tight.plan.summary.recomputed_ops
    tight.load(path)
    assert [float(tight(*batch)) for batch in batches[STEPS:]] == expected
    assert all(torch.equal(value, state[name]) for name, value in tight.state_dict().items())

    leaner = new(budget=ratio)
    leaner.load(path)
    losses = [float(leaner(*batch)) for batch in batches[STEPS:]]
    assert losses == pytest.approx(expected, rel=1e-5)

    other = new(platform=xe.default_platform(), pin={"out.*": "cpu_generic"})
    assert all(device.ops for device in other.plan.summary.devices)
    other.load(path)
    losses = [float(other(*batch)) for batch in batches[STEPS:]]
    assert losses == pytest.approx(expected, rel=1e-5)
    found = other.saved_state()
    assert set(found) == set(slots)


def batches_of_torch() -> object:
    tensors = (torch.arange(96.0).reshape(16, 6), torch.arange(16) % 3)
    return DataLoader(TensorDataset(*tensors), batch_size=4, shuffle=True)


def batches_of_numpy(_epoch: int) -> Iterator[tuple[object, ...]]:
    order = np.random.permutation(16)  # noqa: NPY002  (what users' code calls)
    for rows in order.reshape(4, 4):
        yield np.cos(rows[:, None] * np.ones(6, "float32")), rows % 3


def batches_of_python(_epoch: int) -> Iterator[tuple[object, ...]]:
    rows = random.sample(range(16), 16)
    for start in range(0, 16, 4):
        some = np.array(rows[start : start + 4])
        yield np.sin(some[:, None] * np.ones(6, "float32")), some % 3


SHUFFLED = {
    "torch": batches_of_torch(),
    "numpy": batches_of_numpy,
    "python": batches_of_python,
}


@pytest.mark.parametrize("every_steps", [None, 3])
@pytest.mark.parametrize("generator", SHUFFLED)
def test_data_that_a_global_generator_shuffles_goes_on_in_its_order(
    compile_step: Compile, tmp_path: Path, generator: str, every_steps: int | None
) -> None:
    torch.manual_seed(0)
    module = nn.Linear(6, 3)

    def new() -> xe.Step:
        return compile_step(module, torch.zeros(4, 6), loss="cross_entropy", optimizer="adam")

    def seed(value: int) -> None:
        torch.manual_seed(value)
        np.random.seed(value)  # noqa: NPY002
        random.seed(value)

    seed(1)
    whole = xe.fit(new(), SHUFFLED[generator], epochs=3).losses
    seed(1)
    saving = xe.CheckpointOptions(tmp_path / "run.ckpt", every_steps)
    first = xe.fit(
        new(), SHUFFLED[generator], epochs=3 if every_steps else 1, max_steps=6, checkpoint=saving
    )
    seed(2)
    resuming = xe.CheckpointOptions(saving.path, every_steps, resume=True)
    rest = xe.fit(new(), SHUFFLED[generator], epochs=3, checkpoint=resuming)
    assert first.losses + rest.losses == whole


@pytest.mark.parametrize("damaged", ["torch", "numpy", "python"])
def test_a_damaged_state_of_a_generator_is_refused(
    compile_step: Compile, tmp_path: Path, damaged: str
) -> None:
    step = compile_step(nn.Linear(6, 3), torch.zeros(4, 6), loss="cross_entropy")
    path = tmp_path / "run.ckpt"
    save_step(step, path, Position(0, 0.1, random={damaged: ["?"]}))
    with pytest.raises(InvalidStateError, match=r"cannot be resumed.*generator"):
        xe.fit(step, SHUFFLED["torch"], checkpoint=xe.CheckpointOptions(path, resume=True))
