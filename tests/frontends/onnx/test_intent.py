"""What an ONNX file trains is what its author trained: operators decide, guesses are told."""

import copy
import io

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from tests.training.running import ReferenceRun
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.onnx.author.tables import follows_formula, is_mask
from tvm_xengine.frontends.onnx.importer import import_model
from tvm_xengine.frontends.roles import Use
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.recipe import Recipe

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


def exported(module: nn.Module, *inputs: torch.Tensor) -> onnx.ModelProto:
    """As PyTorch's exporter writes it by default, for inference."""
    file = io.BytesIO()
    torch.onnx.export(copy.deepcopy(module).eval(), inputs, file, opset_version=17, dynamo=False)
    return onnx.load_from_string(file.getvalue())


def imported(module: nn.Module, *inputs: torch.Tensor) -> ForwardModel:
    return import_model("network", exported(module, *inputs))


def names(model: ForwardModel, use: Use) -> set[str]:
    return {role.name for role in model.roles if role.use is use}


def built(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: tuple[int, ...] = (3, 4)
) -> ForwardModel:
    return import_model("network", made(nodes, weights, shape))


def made(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: tuple[int, ...] = (3, 4)
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


class Prepared(nn.Module):
    """Normalised inputs, a causal mask, a learned scale and a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(8))
        self.register_buffer("deviation", torch.rand(8) + 0.5)
        self.register_buffer("mask", torch.full((5, 5), float("-inf")).triu(1))
        self.linear = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.rand(8))
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear((x - self.mean) / self.deviation) * self.scale
        scores = y @ y.transpose(1, 2) / self.temperature + self.mask
        return scores.softmax(-1) @ y


def test_statistics_of_inputs_and_masks_are_not_trained_and_learned_scalars_are() -> None:
    model = imported(Prepared(), torch.randn(2, 5, 8))
    assert names(model, Use.FROZEN) == {"mean", "deviation", "mask"}
    assert {"scale", "temperature", "linear.bias"} <= names(model, Use.TRAINED)
    assert any("mask" in note and "mean" in note for note in model.notes)
    chosen = model.with_trained(["mean", "linear.*"])
    assert {"mean", "linear.bias"} <= names(chosen, Use.TRAINED)


class NormedFirst(nn.Module):
    """A norm in front of all layers, in the operators that older operator sets have."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        apart = x - x.mean(-1, keepdim=True)
        return self.linear(apart * self.norm.weight + self.norm.bias)


def test_a_norm_in_front_of_all_layers_is_trained() -> None:
    model = imported(NormedFirst(), torch.randn(2, 5, 8))
    assert {"norm.weight", "norm.bias"} <= names(model, Use.TRAINED)
    assert not model.notes


class Positions(nn.Module):
    """A fixed table of sines and a learned table of positions."""

    def __init__(self) -> None:
        super().__init__()
        at, rate = torch.arange(40.0)[:, None], torch.exp(torch.arange(0, 8, 2) * -0.5)
        table = torch.zeros(40, 8)
        table[:, 0::2], table[:, 1::2] = torch.sin(at * rate), torch.cos(at * rate)
        self.register_buffer("sines", table)
        self.learned = nn.Parameter(torch.zeros(1, 12, 8))
        self.table = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(x) + self.sines[: x.shape[1]] + self.learned)


def test_a_table_of_sines_is_frozen_and_one_of_zeros_is_learned() -> None:
    model = imported(Positions(), torch.randint(0, 20, (2, 12)))
    (frozen,) = (role for role in model.roles if role.use is Use.FROZEN)
    assert "formula" in frozen.reason
    assert {"learned", "table.weight"} <= names(model, Use.TRAINED)


def test_an_embedding_and_its_transposed_copy_are_one_tensor() -> None:
    model = imported(Positions(), torch.randint(0, 20, (2, 12)))
    (tied,) = (role for role in model.roles if role.name == "table.weight")
    assert len(tied.also) == 1
    assert sum(value.size == 160 for value in model.parameters.values()) == 1
    assert any("tied" in note for note in model.notes)


def test_clones_with_equal_values_are_trained_apart() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = imported(module.train(), torch.randn(2, 5, 8))
    trained = sum(model.parameters[role.variable].size for role in model.roles if role.is_parameter)
    assert trained == sum(p.numel() for p in module.parameters())


def test_a_scale_that_was_merged_with_a_running_variance_is_trained() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 4))
    x, labels = torch.randn(8, 6), torch.randint(0, 4, (8,))
    model = imported(module, x)
    assert names(model, Use.STATISTIC) == {"2.running_mean", "2.running_var"}
    assert {"2.weight", "2.bias"} <= names(model, Use.TRAINED)
    run = ReferenceRun(build_step_by_recipe(model, Recipe()))
    steps = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        loss = F.cross_entropy(module.train()(x), labels)
        found = run(x.numpy(), labels.numpy().astype("int64"))["loss"]
        assert found == pytest.approx(loss.item(), rel=1e-5)
        steps.zero_grad()
        loss.backward()
        steps.step()


NORMS = [
    helper.make_node(
        "LayerNormalization", [f"h{k}", "scale", "shift"], [f"h{k + 1}"], name=f"/l.{k}/Norm"
    )
    for k in range(4)
]
AROUND = [
    helper.make_node("MatMul", ["x", "w"], ["h0"], name="/first/MatMul"),
    *NORMS,
    helper.make_node("Identity", ["h4"], ["y"]),
]


def test_fresh_norms_that_the_exporter_merged_are_trained_apart() -> None:
    weights = {"w": random(4, 4), "scale": np.ones(4, "float32"), "shift": np.zeros(4, "float32")}
    model = built(AROUND, weights)
    assert len(names(model, Use.TRAINED)) == 9
    assert any("merged" in note for note in model.notes)


def test_a_trained_tensor_that_several_layers_read_stays_shared() -> None:
    model = built(AROUND, {"w": random(4, 4), "scale": random(4), "shift": random(4)})
    assert names(model, Use.TRAINED) == {"w", "scale", "shift"}
    (scale,) = (role for role in model.roles if role.name == "scale")
    assert "shared by 3 more" in scale.reason


def test_folded_batch_norms_are_told() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    (note,) = imported(module, torch.randn(2, 3, 5, 5)).notes
    assert "batch norms" in note
    assert "torch.export" in note


def test_first_states_of_zero_are_not_trained() -> None:
    nodes = [
        helper.make_node("GRU", ["x", "w", "r", "", "", "h"], ["", "last"], hidden_size=5),
        helper.make_node("Identity", ["last"], ["y"]),
    ]
    weights = {"w": random(1, 15, 4), "r": random(1, 15, 5), "h": np.zeros((1, 2, 5), "float32")}
    model = built(nodes, weights, (3, 2, 4))
    assert names(model, Use.TRAINED) == {"w", "r"}
    assert names(model, Use.FROZEN) == {"h"}


def test_weights_in_constant_nodes_are_trained_and_bounds_are_not() -> None:
    def constant(name: str, value: np.ndarray) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))

    nodes = [
        constant("w", random(4, 5)),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Clip", ["h", "low", "high"], ["y"]),
    ]
    bounds = {"low": np.float32(-1)[()], "high": np.array(1.0, "float32")}
    model = built(nodes, {name: np.asarray(value) for name, value in bounds.items()})
    assert names(model, Use.TRAINED) == {"w"}


class MadeInForward(nn.Module):
    """Matrices and filters that stand in the code, beside a layer and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.register_buffer("basis", torch.randn(6, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) @ torch.ones(6, 6) @ torch.tensor(random(6, 6).tolist())
        blurred = F.conv1d(y[:, None], torch.tensor([[[1.0, 2.0, 1.0]]]), padding=1)[:, 0]
        return self.head(blurred @ self.basis)


def test_what_the_code_makes_is_not_trained_and_what_may_be_a_buffer_is_told() -> None:
    model = imported(MadeInForward(), torch.randn(4, 6))
    layers = {"linear.weight", "linear.bias", "head.weight", "head.bias"}
    assert names(model, Use.TRAINED) == {*layers, "basis"}
    (told,) = model.notes
    assert told.startswith("the file does not tell whether basis are parameters")
    assert "freeze what is no parameter, as 'basis'" in told


def test_parameters_buffers_and_constants_are_as_the_newer_exporter_tells() -> None:
    weights = {"w": random(4, 4), "b": random(4, 4), "ones": np.ones((4, 4), "float32")}
    weights |= {"val_0": random(4, 4), "val_1": random(4, 4), "scale": random(4)}
    chain = ["x", "scaled", "h_w", "h_b", "h_ones", "h_0", "y"]
    nodes = [helper.make_node("Mul", ["x", "scale"], ["scaled"])]
    for at, name in enumerate(["w", "b", "ones", "val_0", "val_1"], start=1):
        nodes.append(helper.make_node("MatMul", [chain[at], name], [chain[at + 1]]))
    given = made(nodes, weights)
    given.producer_name = "pytorch"
    signature = given.graph.metadata_props.add()
    signature.key = "pkg.torch.export.ExportedProgram.graph_signature"
    signature.value = (
        "\n# inputs\np_scale: PARAMETER target='scale'\np_w: PARAMETER target='w'\n"
        "p_l_weight: PARAMETER target='l.weight'\nb_b: BUFFER target='b' persistent=True\n"
        "b_c: BUFFER target='c' persistent=True\nx: USER_INPUT\n"
    )
    for name, source in (("val_0", "['l.weight']"), ("val_1", "['c']")):
        info = given.graph.value_info.add()
        info.CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 4)))
        folded = info.metadata_props.add()
        folded.key, folded.value = "pkg.onnxscript.optimizer.folded_from", source
    model = import_model("network", given)
    assert names(model, Use.TRAINED) == {"scale", "w", "val_0"}
    assert names(model, Use.FROZEN) == {"b", "ones", "val_1"}
    assert not model.notes


def test_what_an_exporter_computed_of_parameters_is_told() -> None:
    """As PyTorch's newer exporter writes ``exp(both)``, a weight norm, and a weight it turned."""
    weights = {name: random(4, 4) for name in ("both", "val_0", "val_1", "val_2")}
    chain = ["x", "t0", "t1", "t2", "y"]
    nodes = [
        helper.make_node("MatMul", [chain[at], name], [chain[at + 1]])
        for at, name in enumerate(weights)
    ]
    given = made(nodes, weights)
    given.producer_name = "pytorch"
    signature = given.graph.metadata_props.add()
    signature.key = "pkg.torch.export.ExportedProgram.graph_signature"
    signature.value = "".join(
        f"\np: PARAMETER target='{name}'" for name in ("both", "size", "direction", "l.weight")
    )
    sources = {"val_0": ["both"], "val_1": ["size", "direction"], "val_2": ["l.weight"]}
    for name, computed_of in sources.items():
        info = given.graph.value_info.add()
        info.CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 4)))
        folded = info.metadata_props.add()
        folded.key, folded.value = "pkg.onnxscript.optimizer.folded_from", str(computed_of)
    model = import_model("network", given)
    assert [note.partition(";")[0] for note in model.notes] == [
        "the exporter computed val_0 of both, and it is trained apart from it",
        "the exporter computed val_1 of size, direction, and it is trained apart from them",
    ]


def test_what_a_branch_takes_from_around_it_is_no_constant() -> None:
    """The condition alone is one; the branch reads the input."""
    described = helper.make_tensor_value_info("taken", TensorProto.FLOAT, None)
    branches = {
        f"{kind}_branch": helper.make_graph(
            [helper.make_node(operator, ["x"], ["taken"])], kind, [], [described]
        )
        for kind, operator in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        helper.make_node("If", ["always"], ["h"], **branches),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    model = built(nodes, {"always": np.array(True), "w": random(4, 5)})
    assert names(model, Use.TRAINED) == {"w"}


def test_a_network_of_arithmetic_alone_is_trained() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["y"]),
    ]
    model = built(nodes, {"w": random(4), "b": random(4)})
    assert names(model, Use.TRAINED) == {"w", "b"}


@pytest.mark.parametrize("low", [-np.inf, -1e9, float(np.finfo("float32").min), 1.0])
def test_masks_are_zeros_and_one_other_number(low: float) -> None:
    mask = np.triu(np.full((4, 4), low, "float32"), 1)
    mask[np.tril_indices(4)] = 0
    assert is_mask(mask)


def test_fresh_and_random_tensors_are_neither_masks_nor_formulas() -> None:
    for value in (np.zeros((8, 8), "float32"), np.ones((8, 8), "float32"), random(9, 7)):
        assert not is_mask(value)
        assert not follows_formula(value)
    assert follows_formula(np.linspace(0, 3, 20, dtype="float32")[:, None] * np.ones(3, "float32"))


@pytest.mark.parametrize("is_filled", [False, True])
@pytest.mark.parametrize("move", ["Transpose", "Reshape", "Identity"])
def test_a_weight_that_a_node_holds_is_trained_though_its_elements_move(
    move: str, is_filled: bool
) -> None:
    shape = (5, 4) if move == "Transpose" else (4, 5)
    value = np.ones(shape, "float32")
    holds = (
        helper.make_node("ConstantOfShape", ["extents"], ["w"])
        if is_filled
        else helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(value))
    )
    model = built(
        [
            holds,
            helper.make_node(move, ["w", *(["target"] if move == "Reshape" else [])], ["moved"]),
            helper.make_node("Gemm", ["x", "moved", "b"], ["y"]),
        ],
        {
            "b": np.zeros(5, "float32"),
            **({"extents": np.array(shape)} if is_filled else {}),
            **({"target": np.array([4, 5])} if move == "Reshape" else {}),
        },
    )
    assert names(model, Use.TRAINED) == {"w", "b"}
