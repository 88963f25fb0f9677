"""Networks that PyTorch writes as ONNX files train as they do in PyTorch."""

import copy
import pathlib
from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from torch import nn

from tests.shares import share
from tests.training.running import ReferenceRun
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.frontends.onnx.read import from_onnx
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.losses import MEAN_SQUARED_ERROR
from tvm_xengine.training.recipe import Recipe

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


class Written(nn.Module):
    """A function of modules and parameters."""

    def __init__(self, function: Callable[..., torch.Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def _shuffled(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, 1)
    y = torch.cat([left, F.relu(m.norm(m.conv(right)))], 1)
    n, c, h, w = y.shape
    return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w).mean((2, 3))


def _grouped_queries(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    q = m.q(x).view(2, 6, 4, 4).transpose(1, 2)
    k = m.k(x).view(2, 6, 2, 4).transpose(1, 2).repeat_interleave(2, 1)
    mask = torch.full((6, 6), float("-inf")).triu(1)
    weights = (q @ k.transpose(-1, -2) / 2 + mask).softmax(-1)
    return m.o((weights @ k).transpose(1, 2).reshape(2, 6, 16).repeat(1, 2, 1))


def _clipped(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    one_sided = y.clamp(min=-0.2) * y.clamp(max=0.3)
    return one_sided + y.clamp(-0.5, 0.5) + F.celu(y, 0.7) + F.hardtanh(y)


def _summed_products(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bij,jk->bik", m.linear(x), m.other.weight)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "shuffled channels": (
        lambda: Written(_shuffled, conv=nn.Conv2d(4, 4, 1), norm=nn.BatchNorm2d(4)),
        (2, 8, 6, 6),
        14,
    ),
    "paddings": (
        lambda: nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(3, 4, 3),
            nn.ReplicationPad2d((1, 0, 2, 1)),
            nn.Conv2d(4, 3, 3),
            nn.ConstantPad2d((-1, 2, 1, 0), 0.5),
            nn.LocalResponseNorm(3),
        ),
        (2, 3, 6, 6),
        17,
    ),
    "constant padding, version 18": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 4, 3), nn.ConstantPad1d((1, 2), 0.25), nn.Conv1d(4, 2, 2)
        ),
        (2, 3, 7),
        18,
    ),
    "padding that keeps the extent": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, (3, 2), dilation=(2, 1), padding="same"), nn.MaxPool2d(3, 2, 1)
        ),
        (2, 3, 7, 6),
        17,
    ),
    "lstm": (lambda: _Last(nn.LSTM(4, 6, batch_first=True)), (2, 3, 4), 15),
    "lstm, both ways, no biases": (
        lambda: _Last(nn.LSTM(4, 3, bidirectional=True, bias=False, batch_first=True)),
        (2, 3, 4),
        13,
    ),
    "gru, two layers, both ways": (
        lambda: _Last(nn.GRU(4, 3, num_layers=2, bidirectional=True, batch_first=True)),
        (2, 2, 4),
        14,
    ),
    "one step of a rnn": (lambda: _Last(nn.RNN(4, 6)), (1, 3, 4), 13),
    "rnn of relu": (lambda: _Last(nn.RNN(4, 6, nonlinearity="relu")), (3, 3, 4), 16),
    "grouped queries": (
        lambda: Written(
            _grouped_queries, q=nn.Linear(16, 16), k=nn.Linear(16, 8), o=nn.Linear(16, 16)
        ),
        (2, 6, 16),
        18,
    ),
    "clipped": (lambda: Written(_clipped, linear=nn.Linear(8, 5)), (6, 8), 20),
    "einsum": (
        lambda: Written(_summed_products, linear=nn.Linear(8, 5), other=nn.Linear(3, 5)),
        (2, 3, 8),
        13,
    ),
}


class _Last(nn.Module):
    """All states of a recurrent layer, and what it ends with."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        every, last = self.layer(x)
        last = last[0] if isinstance(last, tuple) else last
        return every.flatten(1) + last.transpose(0, 1).reshape(-1, 1)[: every.shape[0]]


def _written(module: nn.Module, x: torch.Tensor, path: pathlib.Path, version: int) -> pathlib.Path:
    torch.onnx.export(
        copy.deepcopy(module),
        (x,),
        str(path),
        opset_version=version,
        dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
    )
    return path


@pytest.mark.parametrize(
    "name",
    share(NETWORKS, set(NETWORKS) - {"lstm", "gru, two layers, both ways", "paddings"}),
)
def test_gradients_are_those_of_autograd(name: str, tmp_path: pathlib.Path) -> None:
    make, shape, version = NETWORKS[name]
    torch.manual_seed(0)
    module, x = make(), torch.randn(shape)
    path = _written(module, x, tmp_path / "network.onnx", version)
    made = module(x)
    target = torch.randn(made.shape)
    loss = F.mse_loss(made, target)
    loss.backward()
    recipe = Recipe(loss=MEAN_SQUARED_ERROR)
    run = ReferenceRun(build_step_by_recipe(from_onnx(path), recipe))
    given = dict(run.state)
    assert run(x.numpy(), target.numpy())["loss"] == pytest.approx(loss.item(), rel=1e-5)
    # Recurrent layers have other names and orders of gates in the file, so norms are compared, too.
    found = run.gradients()
    wanted = {
        identifier(n): p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None
    }
    for parameter, gradient in wanted.items():
        if parameter in found and found[parameter].shape == gradient.shape:
            np.testing.assert_allclose(found[parameter], gradient, rtol=1e-4, atol=1e-5)
    sizes = [sum(float((g**2).sum()) for g in all_.values()) for all_ in (found, wanted)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-4)
    assert given.keys() == run.state.keys()


@pytest.mark.parametrize("kind", ["SAME_UPPER", "SAME_LOWER"])
def test_pools_are_padded_as_onnx_pads_them(kind: str, tmp_path: pathlib.Path) -> None:
    make = onnx.helper.make_node
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": kind}
    nodes = [
        make("Conv", ["x", "w"], ["made"], strides=[2, 3], auto_pad=kind),
        # The reference drops the last row of this pool with SAME_LOWER.
        make("MaxPool" if kind == "SAME_UPPER" else "AveragePool", ["made"], ["pooled"], **window),
        make("AveragePool", ["pooled"], ["y"], **window),
    ]
    w = np.random.default_rng(0).standard_normal((3, 2, 4, 4)).astype("float32")
    x = np.random.default_rng(1).standard_normal((2, 2, 11, 13)).astype("float32")
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "pools",
        [info("x", onnx.TensorProto.FLOAT, x.shape)],
        [info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    opset = [onnx.helper.make_opsetid("", 13)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    onnx.save(model, tmp_path / "pools.onnx")
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    imported = from_onnx(tmp_path / "pools.onnx")
    recipe = Recipe(loss=MEAN_SQUARED_ERROR)
    run = ReferenceRun(build_step_by_recipe(imported, recipe))
    assert run(x, expected)["loss"] == pytest.approx(0.0, abs=1e-10)


def test_what_a_layer_cannot_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    path = _written(_Last(nn.LSTM(4, 6)), torch.randn(5, 3, 4), tmp_path / "network.onnx", 15)
    model = onnx.load(path)
    (layer,) = (node for node in model.graph.node if node.op_type == "LSTM")
    layer.attribute.append(onnx.helper.make_attribute("clip", 1.5))
    onnx.save(model, path)
    with pytest.raises(UnsupportedModelError, match=r"LSTM .*attribute clip = 1\.5"):
        from_onnx(path)
