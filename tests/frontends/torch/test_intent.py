"""What the author of a PyTorch module meant: frozen, shared, and by which names."""

import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.training.autograd import exported
from tests.training.running import ReferenceRun
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.roles import Use
from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.training.build import build_training_step


class Odd(nn.Module):
    """Names that collide once dots are gone, or with those of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.ModuleDict({"b_c": nn.Linear(6, 8)})
        self.a_b = nn.ModuleDict({"c": nn.Linear(8, 8)})
        self.lr = nn.Parameter(torch.randn(8))
        self.labels = nn.Parameter(torch.randn(8))
        self.loss = nn.Parameter(torch.randn(8))
        self.step = nn.Parameter(torch.randn(8))
        self.head = nn.Linear(8, 8)
        self.head.weight = self.a_b["c"].weight
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("scale", torch.full((8,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a["b_c"](x) * self.lr + self.labels * self.loss - self.step
        return self.head(self.norm(torch.tanh(self.a_b["c"](y)))) * self.scale


def uses(model: ForwardModel) -> dict[str, Use]:
    return {name: role.use for role in model.roles for name in role.names}


def test_parameters_that_require_no_gradient_stay_as_they_are() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
    module[0].requires_grad_(False)
    model = exported(module, torch.randn(4, 6))
    assert uses(model) == {
        "0.weight": Use.FROZEN,
        "0.bias": Use.FROZEN,
        "2.weight": Use.TRAINED,
        "2.bias": Use.TRAINED,
    }
    step = build_training_step(model)
    names = {role.name for role in model.roles if role.variable in step.updated_names}
    assert names == {"2.weight", "2.bias"}


def test_names_that_collide_are_told_apart_and_train_as_in_pytorch() -> None:
    torch.manual_seed(0)
    module = Odd()
    model = exported(module, torch.randn(4, 6))
    _take_three_steps_beside_pytorch(model, module)


def _take_three_steps_beside_pytorch(model: ForwardModel, module: nn.Module) -> None:
    run = ReferenceRun(build_training_step(model))
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        x, labels = torch.randn(4, 6), torch.randint(0, 8, (4,))
        found = run(x.numpy(), labels.numpy(), lr=0.1)["loss"]
        loss = nn.functional.cross_entropy(module(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert found == pytest.approx(loss.item(), rel=1e-4)
    state = {**dict(module.named_buffers()), **module.state_dict()}
    for role in model.roles:
        for name in role.names:
            torch.testing.assert_close(
                torch.from_numpy(run.state[role.variable].copy()), state[name], rtol=1e-4, atol=1e-5
            )


class Keywords(nn.Module):
    """Layers and tensors whose names are keywords of Python, one of which forward writes."""

    def __init__(self) -> None:
        super().__init__()
        kinds = {"in": nn.BatchNorm1d(6), "lambda": nn.Linear(6, 8), "in_": nn.Tanh()}
        self.layers = nn.ModuleDict(kinds)
        self.register_parameter("class", nn.Parameter(torch.randn(8)))
        self.register_buffer("from", torch.zeros(8))
        self.register_buffer("None", torch.ones(8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = layer(x)
        getattr(self, "from").add_(x.detach().mean(0))
        return x * getattr(self, "class") + getattr(self, "from") * getattr(self, "None")


def test_names_that_are_keywords_of_python_are_names() -> None:
    torch.manual_seed(0)
    module = Keywords()
    program = torch.export.export(module, (torch.randn(4, 6),))
    model = from_torch_export(program)
    assert {"layers.in.weight", "class", "from"} <= program.state_dict.keys()
    assert {"layers.in.weight", "layers.lambda.bias", "class", "from", "None"} <= uses(model).keys()
    _take_three_steps_beside_pytorch(model, module)


def test_a_shared_parameter_is_one_tensor_with_all_its_names() -> None:
    model = exported(Odd(), torch.randn(4, 6))
    shared = [role for role in model.roles if role.also]
    assert [role.names for role in shared] == [("a_b.c.weight", "head.weight")]


def test_buffers_are_never_trained() -> None:
    model = exported(Odd(), torch.randn(4, 6))
    assert uses(model)["scale"] is Use.CONSTANT
    with pytest.raises(UnsupportedModelError, match=r"train='scale' matches only scale.*constant"):
        model.with_trained(["scale"])


def test_patterns_choose_by_pytorchs_names() -> None:
    module = Odd()
    module.a.requires_grad_(False)
    model = exported(module, torch.randn(4, 6))
    chosen = uses(model.with_trained(["a.*", "head.*"], ["*.bias"]))
    assert {name for name, use in chosen.items() if use is Use.TRAINED} == {
        "a.b_c.weight",
        "a_b.c.weight",
        "head.weight",
    }


def test_a_pattern_without_match_is_refused() -> None:
    model = exported(Odd(), torch.randn(4, 6))
    for options in ({"train": ["backbone.*"]}, {"freeze": ["head.*", "backbone.*"]}):
        with pytest.raises(UnsupportedModelError, match=r"backbone\.\*.*matches no parameter"):
            model.with_trained(**options)


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(_context: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_context: object, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


def test_a_backward_that_the_export_loses_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return _Reversed.apply(self.head(x))

    model = xe.training_step(Module(), torch.zeros(2, 4), loss="cross_entropy").source.training
    (note,) = [note for note in model.notes if "_Reversed" in note]
    assert "lost by torch.export" in note
    assert [record.getMessage() for record in caplog.records].count(f"Module: {note}") == 1
