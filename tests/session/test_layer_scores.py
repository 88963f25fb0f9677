"""Scores of layers from gradients, as PyTorch computes them sample by sample."""

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidScoresError
from tvm_xengine.frontends.layers import enclosing
from tvm_xengine.frontends.roles import TensorRole, Use
from tvm_xengine.model.layer_scores import scored_layers


def network() -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(48, 4),
    )
    with torch.no_grad():
        for _ in range(5):
            made(torch.randn(8, 1, 6, 6) * 2)  # running statistics
    return made


def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 1, 6, 6)).astype(np.float32)
    return x, random.integers(0, 4, count)


def test_scores_are_mean_squares_of_gradients_of_single_samples() -> None:
    module, (x, labels) = network(), samples(6)
    module[0].weight.requires_grad_(False)
    training = xe.training_step(
        module, torch.zeros(4, 1, 6, 6), loss="cross_entropy", clip_norm=0.1
    )
    names = training.step.batch_names
    found = xe.layer_scores(training, Data(dict(zip(names, (x, labels), strict=True))), samples=99)
    module.eval()
    expected = {"0": 0.0, "1": 0.0, "5": 0.0}
    for image, label in zip(torch.tensor(x), torch.tensor(labels), strict=True):
        module.zero_grad()
        nn.functional.cross_entropy(module(image[None]), label[None]).backward()
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                layer = name.partition(".")[0]
                expected[layer] += float((parameter.grad.double() ** 2).sum()) / 6
    assert found == pytest.approx(expected, rel=1e-4)
    assert list(found) == ["0", "1", "5"]


class Recurrent(nn.Module):
    """A model that is written for the size of its batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [-100, 1])
def test_a_model_that_keeps_its_batch_is_scored_on_copies_of_each_sample(ignored: int) -> None:
    module, random = Recurrent(), np.random.default_rng(0)
    x, labels = random.normal(size=(5, 7, 4)).astype(np.float32), np.array([0, 2, 0, 2, 2])
    loss = xe.named_loss("cross_entropy", ignore_index=ignored)
    training = xe.training_step(module, torch.zeros(3, 7, 4), loss=loss)
    names = training.step.batch_names
    found = xe.layer_scores(training, Data(dict(zip(names, (x, labels), strict=True))))
    expected = {"cell": 0.0, "head": 0.0}
    for sample, label in zip(torch.tensor(x), torch.tensor(labels), strict=True):
        module.zero_grad()
        nn.functional.cross_entropy(module(sample[None]), label[None]).backward()
        for name, parameter in module.named_parameters():
            expected[name.partition(".")[0]] += float((parameter.grad.double() ** 2).sum()) / 5
    assert found == pytest.approx(expected, rel=1e-4)


def test_samples_without_any_gradient_score_nothing() -> None:
    class Dead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.fc(x) - 1e3)

    training = xe.training_step(Dead(), torch.zeros(2, 3), loss="mse")
    x = np.ones((4, 3), np.float32)
    data = Data(dict(zip(training.step.batch_names, (x, x[:, :2]), strict=True)))
    with pytest.raises(InvalidScoresError, match="all layers are 0"):
        xe.layer_scores(training, data)


@pytest.mark.parametrize(
    ("name", "around"),
    [
        ("conv1_weight", ["conv1"]),
        ("net.conv.weight", ["net.conv", "net"]),
        ("attn.in_proj_weight", ["attn.in_proj", "attn"]),
        ("onnx::MatMul_12", []),
    ],
)
def test_modules_around_a_parameter_go_outwards(name: str, around: list[str]) -> None:
    assert list(enclosing(name)) == around


def test_a_parameter_belongs_to_the_innermost_name() -> None:
    names = ["a.b.weight", "a.b.bias", "a.c.weight", "d.weight"]
    roles = [TensorRole(name.replace(".", "_"), name, Use.TRAINED) for name in names]
    layers = scored_layers(roles, {"a": 1.0, "a.b": 2.0, "a.b.bias": 3.0})
    assert {layer.name: layer.parameters for layer in layers} == {
        "a.b": ("a_b_weight",),
        "a.b.bias": ("a_b_bias",),
        "a": ("a_c_weight",),
    }
    assert [layer.score for layer in layers] == [2.0, 3.0, 1.0]
