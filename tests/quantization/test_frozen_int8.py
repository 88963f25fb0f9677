"""What of a network becomes int8, and what it then computes and trains."""

import numpy as np
import pytest
import torch

import tvm_xengine as xe
from tests.vm import computed
from tvm_xengine.errors import InvalidDataError, UnsupportedModelError
from tvm_xengine.training.forward.evaluation import evaluation_module

X = np.random.default_rng(0).normal(size=(64, 3, 16, 16)).astype("float32")


class Residual(torch.nn.Module):
    """Blocks as in MobileNetV3: depthwise, gates, residual sums, concatenation, several poolings."""

    def __init__(self) -> None:
        super().__init__()
        n = torch.nn
        self.stem = n.Sequential(
            n.Conv2d(3, 8, 3, 2, 1, bias=False), n.BatchNorm2d(8), n.Hardswish()
        )
        self.depth = n.Sequential(
            n.Conv2d(8, 8, 3, padding=1, groups=8), n.BatchNorm2d(8), n.ReLU6()
        )
        self.gate = n.Sequential(n.AdaptiveAvgPool2d(1), n.Conv2d(8, 8, 1), n.Sigmoid())
        self.point = n.Conv2d(8, 8, 1)
        self.pool, self.mean = n.MaxPool2d(3, 2, 1), n.AvgPool2d(2)
        self.side = n.Conv1d(16, 6, 3, padding=2, dilation=2)
        self.drop = n.Dropout(0.5)
        self.hidden = n.Linear(48, 12)
        self.fc = n.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.depth(x)
        x = torch.relu(x + self.point(y * self.gate(y)))
        x = torch.cat([self.pool(x), self.mean(x)], dim=1)
        x = self.side(
            x.flatten(2).transpose(1, 2)[:, :, :8].contiguous().flatten(1).view(-1, 16, 8)
        )
        x = self.drop(torch.tanh(x.flatten(1)))
        return self.fc(torch.relu(self.hidden(x)))


def sequential() -> torch.nn.Module:
    n = torch.nn
    return n.Sequential(
        n.Conv2d(3, 8, 3, padding=1), n.BatchNorm2d(8), n.ReLU(), n.MaxPool2d(2),
        n.Conv2d(8, 16, 3, 2), n.LeakyReLU(), n.Flatten(), n.Linear(144, 20), n.ReLU(), n.Linear(20, 4),
    )  # fmt: skip


def trained_on(module: torch.nn.Module, pattern: str, **options: object) -> xe.Training:
    example = torch.tensor(X[:4])
    return xe.training_step(
        module, (example,), loss="cross_entropy", optimizer="sgd", train=[pattern], **options
    )


def outputs(training: xe.Training, x: np.ndarray) -> np.ndarray:
    model = training.source.evaluation
    values = [x, *(model.state[p.name] for p in model.main.params[1:])]
    return np.asarray(computed(evaluation_module(model), values)[0])


@pytest.mark.parametrize("kind", [pytest.param("residual", marks=pytest.mark.slow), "sequential"])
def test_outputs_are_near_those_of_pytorch(kind: str) -> None:
    torch.manual_seed(0)
    module = Residual() if kind == "residual" else sequential()
    with torch.no_grad():
        for _ in range(5):
            module.train()(torch.tensor(X))  # statistics other than 0 and 1
    pattern = "fc.*" if kind == "residual" else "9.*"
    training = trained_on(module, pattern, frozen=xe.Int8(X))
    with torch.no_grad():
        theirs = module.eval()(torch.tensor(X[:4])).numpy()
    mine = outputs(training, X[:4])
    assert np.abs(mine - theirs).max() < 0.05 * np.abs(theirs).max()
    count = 6 if kind == "residual" else 3
    assert any(note.startswith(f"{count} frozen layers are int8") for note in training.notes), (
        training.notes
    )


def test_a_frozen_layer_behind_a_trained_one_stays_in_float32() -> None:
    training = trained_on(sequential(), "4.*", frozen=xe.Int8(X))
    state = training.source.training.state
    assert sum(name.endswith("weight_int8") for name in state) == 1
    assert "n7 (a trained layer lies before it)" in training.notes[-1] or any(
        "a trained layer lies before it" in note for note in training.notes
    )
    assert {str(state[name].dtype) for name in training.source.training.trained} == {"float32"}


def test_weights_behind_a_trained_layer_may_be_kept_in_int8() -> None:
    """They are off by half a step of their channel's scale at most."""
    module = sequential()
    training = trained_on(module, "4.*", frozen=xe.Int8(X, behind=True))
    state = training.source.training.state
    for layer in ("7", "9"):
        whole, scale = (state[f"n{layer}_matmul_weight_{end}"] for end in ("stored", "scale"))
        assert whole.dtype == np.int8
        real = module[int(layer)].weight.detach().numpy()
        assert (np.abs(whole * scale[:, None] - real) <= 0.5001 * scale[:, None]).all()
    assert "1 frozen layer is int8: n0" in training.notes
    stored = "frozen, with weights in int8 and sums in float32: n7_matmul, n9_matmul"
    assert stored in training.notes
    assert "before it" not in " ".join(training.notes)


def test_notes_name_weights_in_int8_where_no_layer_computes_in_it() -> None:
    notes = trained_on(sequential(), "0.*", frozen=xe.Int8(X, behind=True)).notes
    stored = "frozen, with weights in int8 and sums in float32: n4, n7_matmul, n9_matmul"
    assert stored in notes
    assert not any("int8" in note for note in notes if note != stored)


def test_a_step_through_weights_in_int8_is_that_of_pytorch_with_these_weights() -> None:
    torch.manual_seed(2)
    n = torch.nn
    module = n.Sequential(
        n.Conv2d(3, 8, 3), n.ReLU(), n.Conv2d(8, 8, 3, padding=1, groups=8), n.Conv2d(8, 16, 3, 2),
        n.LeakyReLU(), n.Flatten(), n.Linear(576, 20), n.ReLU(), n.Linear(20, 4),
    )  # fmt: skip
    labels, x = np.array([0, 1, 2, 3]), torch.tensor(X[:4])
    step = xe.compile(
        module, (x,), loss="cross_entropy", optimizer=xe.SGD(0.1), train=["0.*"],
        frozen=xe.Int8(X, behind=True),
    )  # fmt: skip
    before = step.state_dict()["0.weight"].numpy().copy()
    loss = float(step(X[:4], labels))
    moved = (before - step.state_dict()["0.weight"].numpy()) / 0.1
    with torch.no_grad():
        for layer in (2, 3, 6, 8):
            weight = module[layer].weight
            shape = (-1, *[1] * (weight.ndim - 1))
            scale = weight.flatten(1).abs().amax(1).reshape(shape) / 127
            weight.copy_(torch.round(weight / scale) * scale)
    judge = torch.nn.functional.cross_entropy(module(x), torch.tensor(labels))
    judge.backward()
    assert loss == pytest.approx(judge.item(), abs=1e-5)
    assert np.abs(moved - module[0].weight.grad.numpy()).max() < 1e-4 * np.abs(moved).max()


def test_nothing_to_quantize_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"no frozen layer can be int8: .*before it"):
        trained_on(sequential(), "0.*", frozen=xe.Int8(X))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (X[:0], "expected samples"),
        (X[:, :2], "takes samples of shape"),
        ({"other": X}, "lack"),
        (np.full_like(X, np.nan), "not finite"),
    ],
)
def test_samples_that_do_not_fit_are_refused(samples: object, message: str) -> None:
    with pytest.raises(InvalidDataError, match=message):
        trained_on(sequential(), "9.*", frozen=xe.Int8(samples))


@pytest.mark.slow
def test_a_percentile_cuts_outliers_off() -> None:
    x = X.copy()
    x[0, 0, 0, 0] = 1000.0
    wide = trained_on(sequential(), "9.*", frozen=xe.Int8(x)).source.training
    narrow = trained_on(sequential(), "9.*", frozen=xe.Int8(x, percentile=99.9)).source.training
    clean = trained_on(sequential(), "9.*", frozen=xe.Int8(X)).source.training
    first = next(name for name in wide.state if name.endswith("_factor"))
    for coarse, fine in ((wide, narrow), (wide, clean)):
        assert (coarse.state[first] != fine.state[first]).any()
    with pytest.raises(ValueError, match="expected a percentile"):
        xe.Int8(x, percentile=10)


@pytest.mark.slow
def test_a_step_trains_the_float_layer_as_pytorch_does() -> None:
    """On what the frozen layers make in int8, loss and update of the last layer are PyTorch's."""
    torch.manual_seed(1)
    module = sequential().eval()
    step = xe.compile(
        module, (torch.tensor(X[:4]),), loss="cross_entropy", optimizer=xe.SGD(0.1), train=["9.*"],
        frozen=xe.Int8(X),
    )  # fmt: skip
    labels = np.array([0, 1, 2, 3])
    before = {name: value.numpy().copy() for name, value in step.state_dict().items()}
    assert set(before) >= set(module.state_dict())
    loss = float(step(X[:4], labels))
    after = step.state_dict()
    features = module[:9]
    real = features(torch.tensor(X[:4])).detach()
    fc = torch.nn.Linear(20, 4)
    fc.load_state_dict({k: torch.tensor(before[f"9.{k}"]) for k in ("weight", "bias")})
    judge = torch.nn.functional.cross_entropy(fc(real), torch.tensor(labels))
    judge.backward()
    assert abs(loss - judge.item()) < 0.02
    moved = (before["9.weight"] - after["9.weight"].numpy()) / 0.1
    assert np.abs(moved - fc.weight.grad.numpy()).max() < 0.15 * np.abs(moved).max()


class Masked(torch.nn.Module):
    """Scores of minus infinity, as causal attention has them."""

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.fc = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(8, 8, dtype=torch.bool).triu(1)
        scores = self.scores(x).masked_fill(mask, float("-inf"))
        return self.fc((torch.softmax(scores, dim=-1) * x).mean(1))


def test_what_is_not_finite_stays_in_float32() -> None:
    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(4, 8, 8)).astype("float32")
    module = Masked()
    training = xe.training_step(
        module, (torch.tensor(x),), loss="cross_entropy", train=["fc.*"], frozen=xe.Int8(x)
    )
    with torch.no_grad():
        theirs = module(torch.tensor(x)).numpy()
    assert np.abs(outputs(training, x) - theirs).max() < 0.05
    assert any("1 frozen layer is int8" in note for note in training.notes)
