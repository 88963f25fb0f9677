"""Modules that cannot be meant, or not be exported: the sentence says what to do."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.module import trace_module
from tvm_xengine.training.build import build_training_step

ROWS = torch.randn(4, 6)


class Module(nn.Module):
    """One layer, and a forward pass that a function says."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.layer, x)


class Overlapping(nn.Module):
    """Two tensors in one memory: of halves that overlap, of equal ones, of a matrix and its transpose."""

    def __init__(self, first: torch.Tensor, second: torch.Tensor, *, writes: bool = False) -> None:
        super().__init__()
        for name, value in (("a", first), ("b", second)):
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, value)
        self.layer = nn.Linear(6, 6)
        self.writes = writes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.writes:
            self.a.add_(1)
        return self.layer(x @ self.a @ self.b)


def pieces() -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices that have a row in common."""
    memory = torch.zeros(11, 6)
    return memory[:6], memory[5:]


MATRIX = torch.zeros(6, 6)


@pytest.mark.parametrize(
    "module",
    [
        Overlapping(*pieces(), writes=True),
        Overlapping(MATRIX, MATRIX, writes=True),
        Overlapping(*map(nn.Parameter, pieces())),
        Overlapping(nn.Parameter(MATRIX), nn.Parameter(MATRIX.t())),
        Overlapping(nn.Parameter(MATRIX), MATRIX),
    ],
    ids=["buffers", "equal buffers", "parameters", "transposed", "parameter and buffer"],
)
def test_tensors_in_one_memory_are_named_where_writing_one_changes_the_other(
    module: nn.Module,
) -> None:
    with pytest.raises(UnsupportedModelError, match=r"Overlapping: a and b lie in the same memory"):
        trace_module(module, ROWS, training=True)


@pytest.mark.parametrize(
    "module",
    [
        Overlapping(*pieces()),
        Overlapping(*map(nn.Parameter, torch.zeros(6, 12).split(6, 1))),
        Overlapping(nn.Parameter(MATRIX), nn.Parameter(MATRIX)),
    ],
    ids=["buffers that stay", "columns", "tied"],
)
def test_tensors_in_one_memory_are_taken_where_each_may_be_held_by_itself(
    module: nn.Module,
) -> None:
    trace_module(module, ROWS, training=True)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda layer, x: None, "forward returns no tensor"),
        (lambda layer, x: layer(x).sum().item(), "forward returns no tensor"),
        (lambda layer, x: layer(x) * x.sum().item(), "compute with the tensor"),
        (
            lambda layer, x: torch.linalg.lstsq(layer(x), x).solution,
            r"module: aten\.linalg_lstsq\.default returns .*; write that part .* other operators",
        ),
    ],
    ids=["nothing", "a number", "a number inside", "an operator without a shape"],
)
def test_a_forward_pass_without_tensors_says_what_to_return(
    function: Callable[..., Any], said: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        trace_module(Module(function), ROWS, training=True)


def test_what_forward_returns_beside_tensors_is_handed_back() -> None:
    def forward(layer: nn.Module, x: torch.Tensor) -> Any:
        return None, layer(x), {"scale": 3, "mean": x.mean()}

    traced = trace_module(Module(forward), ROWS, training=True)
    assert traced.outputs == 2
    assert traced.restore([1.0, 2.0]) == (None, 1.0, {"scale": 3, "mean": 2.0})


@pytest.mark.parametrize(
    "function", [lambda layer, x: layer(torch.zeros_like(x)), lambda layer, x: layer.weight]
)
def test_an_output_without_the_values_of_the_inputs_is_refused_with_advice(
    function: Callable[..., Any],
) -> None:
    model = trace_module(Module(function), ROWS, training=True).model
    with pytest.raises(
        UnsupportedModelError, match=r"values of the inputs x; take these out of the model's inputs"
    ):
        build_training_step(model)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_torchscript_is_refused_with_advice() -> None:
    with pytest.raises(UnsupportedModelError, match="give the module that it was made from"):
        trace_module(torch.jit.script(nn.Linear(6, 3)), ROWS, training=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_inputs_of_another_type_are_refused_as_in_pytorch(dtype: torch.dtype) -> None:
    with pytest.raises(UnsupportedModelError, match="give inputs and parameters of one type"):
        trace_module(nn.Linear(6, 3), ROWS.to(dtype), training=True)


def _scattered(_layer: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return torch.as_strided_scatter(rows, torch.ones(2, 2), (2, 2), (6, 1))


@pytest.mark.parametrize(
    ("module", "rows", "said"),
    [
        (nn.Linear(6, 3), torch.randn(4, 5), "same reduction dim"),
        (Module(_scattered), ROWS, "as_strided_scatter"),
    ],
)
def test_a_refusal_logs_nothing(
    module: nn.Module, rows: torch.Tensor, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even when what the import had begun is destroyed."""
    gc.collect()  # of what tests before this one left
    capfd.readouterr()
    with pytest.raises(UnsupportedModelError, match=said):
        trace_module(module, rows, training=True)
    gc.collect()
    assert capfd.readouterr().err == ""


def test_rows_that_are_written_log_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def written(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = layer(x)
        y[torch.tensor([0, 2])] = x[:2, :3]
        return y

    capfd.readouterr()
    build_training_step(trace_module(Module(written), ROWS, training=True).model)
    assert capfd.readouterr().err == ""


def _lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(5), nn.Linear(5, 3))


def _without_values() -> nn.Module:
    return nn.Linear(6, 3, device="meta")


def _expanded() -> nn.Module:
    layer = nn.Linear(6, 3)
    layer.weight = nn.Parameter(torch.randn(3, 1).expand(3, 6))
    return layer


def _packed() -> nn.Module:
    def last(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        lengths = torch.tensor([2, 1])
        packed = nn.utils.rnn.pack_padded_sequence(
            x.view(2, 2, 6), lengths, batch_first=True, enforce_sorted=False
        )
        padded, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        return layer(padded[:, 0])

    return Module(last)


class Recurrent(nn.Module):
    """The lengths are an input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(6, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = (x[:2, 0] > 0).long() + 1
        pack = nn.utils.rnn.pack_padded_sequence
        return self.layer(pack(x.view(2, 2, 6), lengths, batch_first=True, enforce_sorted=False))[1]


def _made_in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return nn.Linear(6, 3)


def _transformed() -> nn.Module:
    return Module(lambda layer, x: torch.func.vmap(torch.func.jacrev(layer))(x).sum(1))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_transformed, r"torch\.func\.vmap.*operators over the batch"),
        (_lazy, r"0\.weight has no shape yet; call the module once"),
        (_without_values, "weight lies on the device meta"),
        (_made_in_inference_mode, "weight was made in torch.inference_mode"),
        (_expanded, "weight repeats its elements in memory.*clone"),
        (Recurrent, "packed sequences .* give the padded batch"),
        (_packed, "packed sequences .* give the padded batch"),
    ],
)
def test_tensors_that_cannot_be_trained_are_named_with_advice(
    make: Callable[[], nn.Module], said: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        trace_module(make(), ROWS, training=True)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_module_that_is_given_without_gradients_is_trained(mode: type) -> None:
    module = nn.Linear(6, 3)
    with mode():
        made = trace_module(module, ROWS, training=True)
    assert set(build_training_step(made.model).updated_names) >= {"weight", "bias"}


def test_a_module_that_is_given_under_autocast_is_refused() -> None:
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(UnsupportedModelError, match="forward"),
    ):
        trace_module(nn.Linear(6, 3), ROWS, training=True)


def test_a_module_that_is_woken_is_told() -> None:
    module = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    module[1].eval()
    assert not trace_module(module, ROWS, training=True).model.notes
    (note,) = trace_module(module.eval(), ROWS, training=True).model.notes
    assert "evaluation mode as a whole" in note
    assert not trace_module(module, ROWS, training=False).model.notes
