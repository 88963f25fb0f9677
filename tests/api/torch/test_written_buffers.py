"""Buffers that a model writes itself are state of the step, as in PyTorch."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.api.torch.in_pytorch import Batch, train
from tests.commands.in_process import run_command
from tests.conftest import Compile
from tests.shares import share
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.evaluation_mode import in_evaluation_mode
from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.training.build import build_training_step


class Averages(nn.Module):
    """Written in place in train mode: averages, a counter that is read, a flag, the last batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 5), nn.BatchNorm1d(5)
        self.register_buffer("average", torch.zeros(5))
        self.register_buffer("largest", torch.ones(()))
        self.register_buffer("last", torch.zeros(4, 6))
        self.register_buffer("started", torch.tensor(False))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("rounds", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("hidden", torch.zeros(5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.linear(x))
        if self.training:
            with torch.no_grad():
                self.average.mul_(0.9).add_(y.mean(0), alpha=0.1)
                self.largest.copy_(torch.clamp(y.abs().max(), min=self.largest))
                self.last.copy_(x)
                self.started.fill_(True)
                self.batches += 1
                self.rounds[0] += 1
                self.rounds[1] += 2 * self.rounds[0]
                self.hidden.add_(y.mean(0))
        return (y - self.average - 0.1 * self.hidden) / self.largest + 0.01 * self.rounds.sum()


class Codebook(nn.Module):
    """Vectors quantized by codes that follow the averages of what they stand for."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(6, 5), nn.Linear(5, 5)
        self.register_buffer("codes", torch.randn(8, 5))
        self.register_buffer("uses", torch.ones(8))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.encoder(x)
        distance = x.pow(2).sum(1, keepdim=True) - 2 * x @ self.codes.t() + self.codes.pow(2).sum(1)
        nearest = distance.argmin(1)
        found = functional.embedding(nearest, self.codes)
        if self.training:
            with torch.no_grad():
                one_hot = functional.one_hot(nearest, 8).type(x.dtype)
                self.uses.mul_(0.9).add_(one_hot.sum(0), alpha=0.1)
                self.sums.mul_(0.9).add_(one_hot.t() @ x, alpha=0.1)
                self.codes.copy_(self.sums / self.uses.unsqueeze(1))
        return self.head(x + (found - x).detach())


class Assigned(nn.Module):
    """New tensors bound to the names of buffers, one of them a queue."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("queue", torch.zeros(3, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        new = 0.5 * self.mean + 0.5 * y.mean(0)
        if self.training:
            self.mean = new.detach()
            self.queue = torch.cat([self.queue[1:], y.detach().mean(0, keepdim=True)])
        return y - new - self.queue.mean(0)


def spectral() -> nn.Module:
    """The power iteration of a norm writes its vectors."""
    layers = (parametrizations.spectral_norm(nn.Linear(6, 7)), nn.Tanh(), nn.Linear(7, 5))
    return nn.Sequential(*layers)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "averages": Averages,
    "codebook": Codebook,
    "assigned": Assigned,
    "spectral": spectral,
}


FAST = ("averages", "assigned")


def optimizer_of(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)


def drawn(count: int) -> list[Batch]:
    return [(torch.randn(4, 6), torch.randint(0, 5, (4,))) for _ in range(count)]


def twins(network: str) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    module, reference = NETWORKS[network](), NETWORKS[network]()
    reference.load_state_dict(module.state_dict())
    return module, reference


@pytest.mark.slow
@pytest.mark.parametrize("network", share(NETWORKS, FAST))
def test_there_and_back_is_as_if_pytorch_had_taken_every_step(
    compile_step: Compile, network: str
) -> None:
    module, reference = twins(network)
    batches = drawn(9)
    mine, theirs = optimizer_of(module), optimizer_of(reference)
    expected = train(reference, theirs, batches[:6])
    losses = train(module, mine, batches[:3])
    step = compile_step(module, batches[0][0], loss="cross_entropy", optimizer=mine)
    step.load_from(module, mine)
    losses += [float(step(x, labels)) for x, labels in batches[3:6]]
    state, wanted = step.state_dict(), reference.state_dict()
    assert list(state) == list(wanted)
    torch.testing.assert_close(state, wanted, rtol=1e-4, atol=1e-5)
    predicted = step.eval()(batches[0][0])
    torch.testing.assert_close(predicted, reference.eval()(batches[0][0]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(step.state_dict(), state)  # evaluation writes nothing

    step.load_into(module, mine)
    losses += train(module, mine, batches[6:])
    expected += train(reference.train(), theirs, batches[6:])
    assert losses == pytest.approx(expected, rel=1e-5, abs=1e-6)
    torch.testing.assert_close(module.state_dict(), reference.state_dict(), rtol=1e-4, atol=1e-5)


def test_a_resumed_step_goes_on_with_the_bits_of_what_was_written(
    compile_step: Compile, tmp_path: Path
) -> None:
    module, _ = twins("averages")
    batches = drawn(4)
    step = compile_step(module, batches[0][0], loss="cross_entropy")
    for x, labels in batches[:2]:
        step(x, labels)
    step.save(tmp_path / "run.ckpt")
    expected = [float(step(x, labels)) for x, labels in batches[2:]]
    again = compile_step(module, batches[0][0], loss="cross_entropy")
    again.load(tmp_path / "run.ckpt")
    assert [float(again(x, labels)) for x, labels in batches[2:]] == expected


@pytest.mark.slow
def test_micro_batches_write_one_after_another(compile_step: Compile) -> None:
    module, reference = twins("assigned")
    x, labels = torch.randn(8, 6), torch.randint(0, 5, (8,))
    step = compile_step(module, x[:4], loss="cross_entropy", micro_batches=2)
    step(x, labels)
    for part in (x[:4], x[4:]):
        reference(part)
    state = step.state_dict()
    torch.testing.assert_close(state["queue"], reference.queue)
    torch.testing.assert_close(state["mean"], reference.mean)


def test_a_model_trained_as_it_is_used_writes_nothing() -> None:
    module, _ = twins("codebook")
    model = from_torch_export(torch.export.export(module.train(), (torch.randn(4, 6),)))
    assert set(model.statistics) == {"codes", "uses", "sums"}
    fixed = in_evaluation_mode(model)
    assert not fixed.statistics
    assert not set(model.statistics) & set(build_training_step(fixed).updated_names)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("clamped", r"writes the parameters linear\.weight,"),
        ("grown", r"assigns float32 of shape \(2, 5\) to the buffer kept .* of shape \(1, 5\)"),
    ],
)
def test_what_a_step_cannot_write_is_refused(
    compile_step: Compile, module: str, message: str
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 5)
            self.register_buffer("kept", torch.zeros(1, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if module == "clamped":
                with torch.no_grad():
                    self.linear.weight.clamp_(-1, 1)
            y = self.linear(x)
            if module == "grown":
                self.kept = torch.cat([self.kept, y.detach()[:1]])
            return y

    with pytest.raises(UnsupportedModelError, match=message):
        compile_step(Net(), torch.randn(4, 6), loss="cross_entropy")


@pytest.mark.slow
def test_a_package_in_c_writes_the_buffers_as_the_library_does(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Averages().train(), (torch.randn(4, 6),)), path)
    options = ("--target", "host", "--arena-bytes", "64KiB", "--solver", "greedy", "--check")
    done = run_command("export", str(path), *options, "-o", str(tmp_path / "package"))
    assert done.returncode == 0, done.stderr
    assert "self-test passed" in done.stdout
