"""Zoo networks are the published ones: same sizes, same function, same gradients."""

import pytest
import torch

from tests.networks.compare import batches, gradient_error, run_torch
from tests.networks.registry import networks
from tests.training.running import ReferenceRun
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends import load_model, zoo
from tvm_xengine.training.build import build_training_step


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("lenet", {}, 61_706),
        ("resnet8", {}, 78_186),
        ("ds_cnn", {}, 23_756),
        ("resnet50", {"num_classes": 1000}, 25_557_032),
        ("mobilenetv2", {"num_classes": 1000}, 3_504_872),
        ("unet", {}, 31_036_546),
        pytest.param(
            "vgg16", {"num_classes": 1000, "size": 224}, 138_357_544, marks=pytest.mark.slow
        ),
    ],
)
def test_zoo_networks_have_the_published_number_of_parameters(name, options, expected):
    model = zoo.build(name, batch_size=1, **options)
    assert sum(value.size for value in model.parameters.values()) == expected


@pytest.mark.parametrize(
    "name",
    [
        "lenet",
        "ds_cnn",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("gpt_nano", "resnet8")),
    ],
)
def test_zoo_networks_have_the_gradients_of_the_torch_networks(name):
    network = networks()[f"zoo {name}"]
    subject = network.subject(network.checked, torch.float64)
    run = ReferenceRun(build_training_step(subject.model))
    (batch,) = batches(run.step, subject, network.vocabulary, 1)
    run(*(part.numpy() for part in batch))
    expected = run_torch(subject, [batch]).gradients
    assert gradient_error(run.gradients(), expected, least_share=1e-6) < 1e-7


def test_hyphens_count_as_underscores():
    assert load_model("ds-cnn", batch_size=2).batch_size == 2


def test_size_of_a_file_cannot_be_chosen():
    with pytest.raises(UnsupportedModelError, match="fixed in the file"):
        load_model("net.onnx", size=32)


def test_a_network_of_no_class_is_refused():
    with pytest.raises(UnsupportedModelError, match="at least one class"):
        zoo.build("mlp", num_classes=0)
    with pytest.raises(UnsupportedModelError, match="divisible by 16"):
        zoo.build("unet", size=40)
