"""Gradients of whole networks agree with PyTorch's autograd."""

import pathlib

import numpy as np
import pytest
import torch
from torch import nn

from tests.frontends.torch.networks import LeNet, ResNet18
from tests.training.autograd import exported, worst_gradient_error
from tests.training.running import ReferenceRun
from tvm_xengine.frontends import zoo
from tvm_xengine.frontends.onnx.read import from_onnx
from tvm_xengine.training.build import build_training_step


@pytest.fixture(params=["lenet", pytest.param("resnet18", marks=pytest.mark.slow)])
def network(request: pytest.FixtureRequest) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    module, shape = {
        "lenet": lambda: (LeNet(size=16), (4, 1, 16, 16)),
        "resnet18": lambda: (ResNet18(width=4), (4, 3, 16, 16)),
    }[request.param]()
    return module.train(), torch.randn(shape), torch.randint(0, 10, shape[:1])


def test_exported_program_has_the_gradients_of_autograd(network):
    module, x, labels = network
    assert worst_gradient_error(exported(module, x), module, x, labels) < 1e-4


@pytest.mark.filterwarnings("ignore")
def test_onnx_file_has_the_gradients_of_autograd(network, tmp_path: pathlib.Path):
    module, x, labels = network
    path = tmp_path / "network.onnx"
    torch.onnx.export(
        module,
        (x[:2],),
        path,
        dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING,
        input_names=["x"],
        dynamic_axes={"x": {0: "batch"}},
    )
    model = from_onnx(path, batch_size=len(x))
    assert worst_gradient_error(model, module, x, labels) < 1e-4


def test_zoo_network_is_the_torch_network_of_that_name():
    torch.manual_seed(0)
    model = zoo.build("lenet", batch_size=4, size=16)
    module = LeNet(size=16)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(model.parameters[name.replace(".", "_")]))
    x, labels = torch.randn(4, 1, 16, 16), torch.randint(0, 10, (4,))
    assert worst_gradient_error(model, module, x, labels) < 1e-4


def test_running_statistics_are_those_of_pytorch():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).train()
    x, labels = torch.randn(4, 3, 6, 6), torch.randint(0, 10, (4,))
    run = ReferenceRun(build_training_step(exported(module, x)))
    for _ in range(2):
        run(x.numpy(), labels.numpy(), lr=0.0)
        module(x)
    for name in ("running_mean", "running_var"):
        expected = getattr(module[1], name).numpy()
        np.testing.assert_allclose(run.state[f"n1_{name}"], expected, rtol=1e-5, atol=1e-6)
