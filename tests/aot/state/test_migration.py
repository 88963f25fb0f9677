"""State moves by name to a package with another plan, batch or optimizer, as PyTorch moves it."""

from pathlib import Path

import numpy as np
import pytest
import torch

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tests.aot.state.test_checkpoint import EABSENT, EFROZEN, INITIALISE, CheckpointSession
from tests.commands.in_process import run_command
from tvm_xengine.aot.entries import chosen_entries
from tvm_xengine.aot.export import ExportReport, export_step
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.package.checkpoint_file import Checkpoint, decoded, hash_of
from tvm_xengine.aot.package.migrate import Kept, PackageState, migrated
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.errors import InvalidStateError

RATE = 0.05
ORDER = ("0.weight", "0.bias", "2.weight", "2.bias")
MOMENTUM = xe.SGD(RATE, momentum=0.9)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def package_of(
    module: torch.nn.Module,
    folder: Path,
    *,
    optimizer: object = MOMENTUM,
    batch: int = 4,
    regions: str = "sram=64KiB",
    train: list[str] | None = None,
    entries: tuple[str, ...] = (),
) -> ExportReport:
    training = xe.training_step(
        module, torch.zeros(batch, 6), loss="cross_entropy", optimizer=optimizer, train=train
    )
    options = ExportOptions(
        "host", parse_regions(regions), learning_rate=RATE, entries=chosen_entries(entries)
    )
    return export_step(training.source.training, training.step, options, folder)


def begun(report: ExportReport, folder: Path) -> CheckpointSession:
    folder.mkdir(exist_ok=True)
    session = CheckpointSession(report, folder)
    assert session.init() == session.call("state_reset") == 0
    return session


def train_both(
    session: CheckpointSession,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: int,
    seed: int,
) -> None:
    """Three steps of both on the same batches, with the same losses."""
    random = np.random.default_rng(seed)
    for _ in range(3):
        x, labels = random.normal(size=(batch, 6)).astype(np.float32), random.integers(0, 3, batch)
        found = np.zeros(1, np.float32)
        assert session.call("train_step", x, labels, found, None) == 0
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(labels))
        loss.backward()
        optimizer.step()
        assert found[0] == pytest.approx(loss.item(), rel=1e-4)


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[torch.nn.Module, torch.optim.SGD, bytes, Path]:
    """A network, its optimizer, a package's checkpoint after three steps, and where packages lie."""
    need_tools("host")
    folder = tmp_path_factory.mktemp("migration")
    session = begun(package_of(network(), folder / "first"), folder / "1")
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), RATE, momentum=0.9)
    train_both(session, module, optimizer, 4, seed=1)
    return module, optimizer, session.save(), folder


def test_constants_with_a_row_for_each_sample_are_those_of_another_batch() -> None:
    rows = np.arange(6, dtype=np.float32)[None]
    of_four, of_one = hash_of({"h": np.repeat(rows, 4, 0)}), hash_of({"h": rows})
    assert of_four == of_one != hash_of({"h": rows + 1})


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gru = torch.nn.GRU(6, 5)
        self.line = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(self.gru(x[None])[0][0])


@pytest.mark.slow
def test_a_recurrent_network_moves_to_another_batch(tmp_path: Path) -> None:
    need_tools("host")
    first = begun(package_of(Recurrent(), tmp_path / "four", batch=4), tmp_path / "1")
    module = Recurrent()
    optimizer = torch.optim.SGD(module.parameters(), RATE, momentum=0.9)
    train_both(first, module, optimizer, 4, seed=1)
    second = begun(package_of(Recurrent(), tmp_path / "two", batch=2), tmp_path / "2")
    assert second.load(first.save()) == 0
    train_both(second, module, optimizer, 2, seed=2)


def test_a_checkpoint_has_the_names_and_values_of_pytorch(trained) -> None:
    module, optimizer, content, _ = trained
    tensors = decoded(content).tensors
    for name, parameter in module.named_parameters():
        velocity = optimizer.state[parameter]["momentum_buffer"]
        for key, expected in (
            (f"model/{name}", parameter.detach()),
            (f"optimizer/{name}/velocity", velocity),
        ):
            np.testing.assert_allclose(tensors.pop(key), expected, rtol=1e-4, atol=1e-6)
    assert tensors == {"setting/lr": np.float32(RATE)}


def copy_of(module: torch.nn.Module) -> torch.nn.Module:
    other = network()
    other.load_state_dict(module.state_dict())
    return other


def test_another_batch_and_another_plan_go_on_where_the_first_stopped(trained) -> None:
    module, optimizer, content, folder = trained
    report = package_of(
        network(), folder / "other", batch=2, regions="sram=8KiB", entries=("train_step",)
    )
    session = begun(report, folder / "2")
    assert session.load(content) == 0
    assert session.loaded()["taken"] == 9
    other = copy_of(module)
    same = torch.optim.SGD(other.parameters(), RATE, momentum=0.9)
    same.load_state_dict(optimizer.state_dict())
    train_both(session, other, same, 2, seed=2)


@pytest.mark.slow
def test_another_optimizer_begins_anew_with_the_trained_model(trained) -> None:
    module, _, content, folder = trained
    report = package_of(network(), folder / "adam", optimizer=xe.Adam(RATE))
    session = begun(report, folder / "3")
    assert session.load(content) == EABSENT
    assert session.load(content, absent=INITIALISE) == 0
    found = session.loaded()
    assert (found["taken"], found["ignored"]) == (4, 5)
    other = copy_of(module)
    train_both(session, other, torch.optim.Adam(other.parameters(), RATE), 4, seed=3)


@pytest.mark.slow
def test_an_inference_package_takes_the_model_only(trained) -> None:
    module, _, content, folder = trained
    report = package_of(network(), folder / "infer", entries=("infer",))
    session = begun(report, folder / "4")
    assert session.load(content) == 0
    x, output = np.ones((1, 6), np.float32), np.zeros(3, np.float32)
    assert session.call("infer", x, output) == 0
    expected = module(torch.ones(1, 6))[0].detach().numpy()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_what_is_frozen_must_be_the_same(trained) -> None:
    _, _, content, folder = trained
    head = package_of(network(), folder / "head", train=["2.*"])
    session = begun(head, folder / "5")
    assert session.load(content, absent=INITIALISE) == EFROZEN
    assert session.loaded()["tensor"] == "model/0.weight"
    own = session.save()  # of the head alone
    whole = begun(package_of(network(), folder / "whole"), folder / "6")
    assert whole.load(own) == EABSENT
    assert whole.load(own, absent=INITIALISE) == 0  # the rest is as it was exported
    twin = network()
    values = {name: torch.tensor(decoded(content).tensors[f"model/{name}"]) for name in ORDER}
    twin.load_state_dict(values)
    later = begun(package_of(twin, folder / "later", train=["2.*"]), folder / "7")
    assert later.load(content, absent=INITIALISE) == 0  # exported with the trained values
    assert later.load(own, absent=INITIALISE) == EFROZEN  # trained on another backbone
    assert later.loaded()["tensor"] in ("model/0.weight", "model/0.bias")


@pytest.mark.slow
def test_the_command_line_migrates_between_packages_and_pytorch(trained, tmp_path: Path) -> None:
    module, _, content, folder = trained
    first, torch_file, back = (tmp_path / name for name in ("a.xecp", "b.pt", "c.xecp"))
    first.write_bytes(content)
    assert run_command("export-state", str(first), "-o", str(torch_file)).returncode == 0
    state = torch.load(torch_file, weights_only=True)
    assert set(state) == set(module.state_dict())
    report = package_of(network(), folder / "host_adam", optimizer=xe.Adam(RATE))
    made = ("-o", str(back), "--package", str(folder / "host_adam"), "--sequence", "7")
    done = run_command("export-state", str(torch_file), *made)
    assert done.returncode == 0
    assert "absent, so the package initialises them: optimizer/0.weight/first_moment" in done.stdout
    session = begun(report, folder / "8")
    assert session.load(back.read_bytes(), absent=INITIALISE) == 0
    assert session.loaded()["sequence"] == 7
    for tensor in report.package.state:
        if tensor.saved_name.startswith("model/"):
            expected = state[tensor.saved_name.removeprefix("model/")]
            np.testing.assert_array_equal(session.state(tensor.name), expected)
    wrong = {**{name: value.numpy() for name, value in state.items()}, "2.weight": np.zeros((3, 9))}
    np.savez(tmp_path / "wrong.npz", **wrong)
    refused = run_command("export-state", str(tmp_path / "wrong.npz"), *made).refusal()
    assert "model/2.weight has shape (3, 9), the package's has (3, 8)" in refused
    assert decoded(back.read_bytes()).sequence == 7  # the file of before is still there


@pytest.mark.slow
def test_the_host_refuses_what_the_device_refuses(trained, tmp_path: Path) -> None:
    _, _, content, folder = trained
    (tmp_path / "whole.xecp").write_bytes(content)
    package_of(network(), folder / "frozen", train=["2.*"])
    made = ("-o", str(tmp_path / "head.xecp"), "--package", str(folder / "frozen"))
    refused = run_command("export-state", str(tmp_path / "whole.xecp"), *made).refusal()
    assert "model/0.weight is frozen in the package" in refused
    assert not (tmp_path / "head.xecp").exists()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("setting/lr", -0.5, "a package takes none that is negative or not finite"),
        ("setting/lr", float("nan"), "a package takes none that is negative or not finite"),
        ("model/w", 1e6, "too large for the package's float16"),
    ],
)
def test_the_host_writes_no_value_that_the_device_cannot_take(
    name: str, value: float, reason: str
) -> None:
    kept = (Kept(("model/w",), "float16", ()), Kept(("setting/lr",), "float32", ()))
    package = PackageState(kept, {}, 1, 0, {"setting/lr": 0.5})
    tensors = {"model/w": np.float32(1), name: np.float32(value)}
    given = Checkpoint({key: np.array(one) for key, one in tensors.items()}, origin=1)
    with pytest.raises(InvalidStateError, match=reason):
        migrated(given, package, of_package=True)
