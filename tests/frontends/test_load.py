"""Front ends read models, and say clearly what they cannot read."""

import pathlib

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from tests.training.autograd import worst_gradient_error
from tvm_xengine.errors import MissingGradientError, UnsupportedModelError
from tvm_xengine.frontends import load_model, zoo
from tvm_xengine.frontends.assemble import with_output, without_final_softmax
from tvm_xengine.frontends.onnx.read import from_onnx
from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.training.build import build_training_step


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.fc = nn.Linear(2, 3)
        self.head = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Flat(nn.Module):
    """Two layers without norms, all of whose parameters are read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 2, 3), nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.tanh(self.conv(x)).mean((2, 3)))


IMAGE = torch.randn(2, 1, 5, 5)


def _constant_of_shape_model() -> onnx.ModelProto:
    """A classifier whose weight is filled by a node, and whose batch size is fixed to 1."""
    nodes = [
        helper.make_node(
            "ConstantOfShape",
            ["weight_shape"],
            ["weight"],
            value=numpy_helper.from_array(np.array([0.5], "float32")),
        ),
        helper.make_node("Reshape", ["x", "flat"], ["rows"]),
        helper.make_node("MatMul", ["rows", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [
            numpy_helper.from_array(np.array([4, 3]), "weight_shape"),
            numpy_helper.from_array(np.array([1, 4]), "flat"),
            numpy_helper.from_array(np.ones(3, "float32"), "bias"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_exported_program_becomes_named_groups_of_tensors(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Net().train(), (IMAGE,)), path)
    model = load_model(str(path), batch_size=2)
    assert model.input_names == ("x",)
    assert list(model.statistics) == ["norm_running_mean", "norm_running_var"]
    assert list(model.parameters) == [
        f"{layer}_{kind}" for layer in ("conv", "norm", "fc") for kind in ("weight", "bias")
    ]


def test_filled_weights_of_onnx_become_parameters_and_the_batch_grows(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "classifier.onnx"
    onnx.save(_constant_of_shape_model(), path)
    model = from_onnx(path, batch_size=5)
    assert model.input_shapes == ((5, 2, 2),)
    np.testing.assert_array_equal(model.parameters["weight"], np.full((4, 3), 0.5, "float32"))
    drawn = from_onnx(path, batch_size=5, initialise_seed=1)
    assert drawn.parameters["weight"].std() > 0.1
    np.testing.assert_array_equal(drawn.parameters["bias"], np.zeros(3, "float32"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.onnx", None, "there is no file"),
        ("missing.pt2", None, "there is no file"),
        ("broken.onnx", b"this is not a model", "is not an ONNX model"),
        ("broken.pt2", b"this is not a program", "is not a program saved by torch.export.save"),
        ("unknown", None, "lenet, mlp, resnet8"),
    ],
)
def test_files_that_cannot_be_read_are_named(
    name: str, content: bytes | None, message: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=message):
        load_model(name if name == "unknown" else str(path), batch_size=2)


def test_dynamic_shapes_are_refused() -> None:
    program = torch.export.export(
        Net().eval(), (IMAGE,), dynamic_shapes={"x": {0: torch.export.Dim("batch", min=2)}}
    )
    with pytest.raises(UnsupportedModelError, match=r"\['x'\] have dynamic shapes"):
        from_torch_export(program)


def test_inner_dynamic_dimensions_of_onnx_are_refused(tmp_path: pathlib.Path) -> None:
    model = _constant_of_shape_model()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "height"
    path = tmp_path / "dynamic.onnx"
    onnx.save(model, path)
    with pytest.raises(UnsupportedModelError, match=r"dynamic dimensions \['height'\]"):
        load_model(str(path), batch_size=2)


def test_another_batch_size_than_the_exported_one_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Net(), (IMAGE,)), path)
    with pytest.raises(UnsupportedModelError, match="batches of 2, not 8"):
        load_model(str(path), batch_size=8)


def test_unread_parameters_stay_out_of_the_step() -> None:
    model = from_torch_export(torch.export.export(Net(), (IMAGE,)))
    assert not any(name.startswith("head") for name in build_training_step(model).state_names)


def test_integer_outputs_are_refused() -> None:
    class Classes(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).argmax(1)

    model = from_torch_export(torch.export.export(Classes(), (IMAGE,)))
    with pytest.raises(UnsupportedModelError, match="needs a floating-point tensor"):
        build_training_step(model)


def test_several_outputs_are_refused_until_one_is_chosen() -> None:
    class Two(Net):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = super().forward(x)
            return y, y * 2

    model = from_torch_export(torch.export.export(Two(), (IMAGE,)))
    with pytest.raises(UnsupportedModelError, match="returns 2 tensors"):
        build_training_step(model)
    assert build_training_step(with_output(model, 0)).result_names == ("loss", "correct")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        if name in ("vgg16", "unet", "resnet50")
        else name
        for name in zoo.NETWORKS
    ],
)
def test_equal_seeds_build_equal_networks(name: str) -> None:
    first, second = (zoo.build(name, batch_size=2, size=32, seed=3) for _ in range(2))
    for key, value in first.state.items():
        np.testing.assert_array_equal(value, second.state[key])


def test_a_size_too_small_for_a_network_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"vgg16: size 8 .* usual size is 32"):
        zoo.build("vgg16", size=8)


def test_ops_without_derivative_that_cut_off_the_parameters_are_named(tmp_path):
    weight = numpy_helper.from_array(np.ones((4, 2), "float32"), "w")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("Round", ["m"], ["y"], name="head/round"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])],
        [weight],
    )
    path = tmp_path / "rounded.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    with pytest.raises(MissingGradientError, match=r"relax\.round \(in head_round\)"):
        build_training_step(from_onnx(path))


def test_all_unknown_ops_of_onnx_are_listed_with_their_layers(tmp_path: pathlib.Path) -> None:
    nodes = [
        helper.make_node("Magic", ["x"], ["h"], name="/body/Magic", domain="acme"),
        helper.make_node("Wonder", ["h"], ["y"], name="/head/Wonder", domain="acme"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    path = tmp_path / "magic.onnx"
    onnx.save(helper.make_model(graph), path)
    with pytest.raises(
        UnsupportedModelError, match=r"2 ops .*Magic \(in body\), Wonder \(in head\)"
    ):
        from_onnx(path)


def test_buffers_that_the_forward_pass_changes_are_state_that_it_updates() -> None:
    class Averaging(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean_output", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            self.mean_output.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
            return y

    model = from_torch_export(torch.export.export(Averaging(), (IMAGE,)))
    assert "mean_output" in model.statistics
    assert "mean_output" in build_training_step(model).updated_names


def test_parameters_that_nothing_reads_are_named(caplog: pytest.LogCaptureFixture) -> None:
    from_torch_export(torch.export.export(Net(), (IMAGE,)))
    assert "does not depend on head.bias, head.weight: left out" in caplog.text


def test_changes_in_place_inside_the_model_are_followed() -> None:
    class InPlace(Flat):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            y[:, 1].mul_(3.0)
            view = y.view(-1)
            view.add_(torch.ones_like(view))
            return y.relu_()

    torch.manual_seed(0)
    module = InPlace().train()
    model = from_torch_export(torch.export.export(module, (IMAGE,)))
    assert worst_gradient_error(model, module, IMAGE, torch.tensor([0, 2])) < 1e-4


def test_a_final_softmax_is_left_to_the_loss() -> None:
    class Probabilities(Flat):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(super().forward(x), 1)

    torch.manual_seed(0)
    module = Probabilities()
    bare = without_final_softmax(from_torch_export(torch.export.export(module, (IMAGE,))))
    logits = Flat()
    logits.load_state_dict(module.state_dict())
    assert worst_gradient_error(bare, logits, IMAGE, torch.tensor([0, 2])) < 1e-4
    assert without_final_softmax(bare) is bare
