"""Zoo networks are the published ones: same sizes, same function, same gradients."""

import pytest
import torch
from torch import nn

from tests.frontends.torch_networks import DSCNN, LeNet, ResNet8
from tests.training.autograd import worst_gradient_error
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends import load_model, zoo
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers


def copy_parameters(model: ForwardModel, module: nn.Module) -> None:
    """Give the module the zoo's values; both list their parameters in the order of the layers."""
    parameters = list(module.parameters())
    assert len(parameters) == len(model.parameters)
    with torch.no_grad():
        for parameter, value in zip(parameters, model.parameters.values(), strict=True):
            assert parameter.shape == value.shape
            parameter.copy_(torch.from_numpy(value))


@pytest.mark.parametrize(
    ("name", "num_classes", "expected"),
    [("lenet", None, 61_706), ("resnet8", None, 78_186), ("ds_cnn", None, 23_756)],
)
def test_zoo_networks_have_the_published_number_of_parameters(name, num_classes, expected):
    model = zoo.build(name, batch_size=1, num_classes=num_classes)
    assert sum(value.size for value in model.parameters.values()) == expected


@pytest.mark.parametrize(
    ("name", "size", "reference"),
    [("lenet", 16, lambda: LeNet(16)), ("resnet8", 8, ResNet8), ("ds_cnn", None, DSCNN)],
)
def test_zoo_network_is_the_torch_network_of_that_name(name, size, reference, monkeypatch):
    monkeypatch.setattr(Layers, "dropout", lambda _layers, _name, x, _rate: x)
    model = zoo.build(name, batch_size=3, size=size, num_classes=10)
    module = reference().train()
    copy_parameters(model, module)
    torch.manual_seed(0)
    x, labels = torch.randn(model.input_shapes[0]), torch.randint(0, 10, (3,))
    assert worst_gradient_error(model, module, x, labels, names=list(model.parameters)) < 1e-4


def test_hyphens_count_as_underscores():
    assert load_model("ds-cnn", batch_size=2).batch_size == 2


def test_size_of_a_file_cannot_be_chosen():
    with pytest.raises(UnsupportedModelError, match="fixed in the file"):
        load_model("net.onnx", size=32)
