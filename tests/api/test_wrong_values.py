"""What is not what was meant is refused in a sentence, and nothing has changed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.conftest import Compile
from tvm_xengine.errors import (
    InvalidInputError,
    InvalidStateError,
    NotFiniteError,
    UnsupportedModelError,
    XEngineError,
)

ROWS = np.arange(8, dtype="float32").reshape(2, 4) / 8
LABELS = np.array([1, 2])


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 5))


@pytest.fixture(scope="module")
def made(compile_step: Compile) -> xe.Step:
    return compile_step(network(), torch.zeros(2, 4), loss="cross_entropy")


@pytest.fixture
def step(made: xe.Step) -> xe.Step:
    made.load_from(network())
    return made


def unchanged(step: xe.Step) -> bool:
    wanted = network().state_dict()
    return all(torch.equal(value, wanted[name]) for name, value in step.state_dict().items())


@pytest.mark.parametrize(
    ("rows", "labels", "said"),
    [
        (
            np.full((2, 4), 1e300),
            LABELS,
            r"input must have numbers that float32 can hold.*\(0, 0\)",
        ),
        (torch.full((2, 4), -1e39, dtype=torch.float64), LABELS, "float32 can hold, got -1e"),
        (np.ma.masked_greater(ROWS, 0.5), LABELS, "input: expected an array without mask"),
        (ROWS, np.ma.array(LABELS, mask=[True, False]), "labels: expected an array without mask"),
        (torch.tensor(ROWS).to_sparse(), LABELS, "dense tensor, got one that is sparse_coo"),
        (torch.empty(2, 4, device="meta"), LABELS, "dense tensor, got one that is meta"),
        (torch.zeros(2, 4, dtype=torch.complex64), LABELS, "type float32, got complex64"),
        (ROWS.astype(object), LABELS, "type float32, got object"),
        (ROWS.astype("datetime64[s]"), LABELS, r"type float32, got datetime64\[s\]"),
        (iter(ROWS), LABELS, "input: expected an array or tensor, got "),
        ({1.0, 2.0}, LABELS, "input: expected an array or tensor, got set"),
        ("rows.npy", LABELS, "input: expected an array or tensor, got str"),
        (ROWS.T, LABELS, r"shape \(2, 4\), got \(4, 2\)"),
        (np.float32(1), LABELS, r"shape \(2, 4\), got \(\)"),
        (ROWS, LABELS.astype("float64"), "labels must have type int64, got float64"),
        (ROWS, np.array([1, 2**64 - 1], "uint64"), "labels must be in 0..4 or -100"),
    ],
)
def test_a_batch_is_refused_before_anything_is_overwritten(
    rows: Any, labels: Any, said: str, step: xe.Step
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        step.step(rows, labels)
    assert unchanged(step)


def test_an_index_beyond_a_table_is_refused_in_training_and_in_evaluation(
    compile_step: Compile,
) -> None:
    network = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(8, 3))
    rows = torch.zeros(2, 2, dtype=torch.int64)
    made = compile_step(network, rows, loss="cross_entropy")
    for index in (-1, 7, 10**6):
        rows[1, 0] = index
        for call in (made.step, made.predict):
            given = (rows, LABELS) if call == made.step else (rows,)
            with pytest.raises(InvalidInputError, match=rf"in 0\.\.6, got {index} at \(1, 0\)"):
                call(*given)


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "in Fortran's order": np.asfortranarray,
    "backwards in memory": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "every second element": lambda a: np.repeat(a, 2, axis=0)[::2],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "masked without a hidden element": np.ma.array,
    "a tensor backwards in memory": lambda a: torch.tensor(a.T.copy()).permute(
        *range(a.ndim)[::-1]
    ),
    "a tensor that is negated when read": lambda a: (
        torch.tensor(-a)._neg_view() if a.dtype.kind == "f" else torch.tensor(a)
    ),
    "nested lists": lambda a: np.array(a.tolist(), a.dtype),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_may_lie_in_memory_in_any_way(layout: str, step: xe.Step) -> None:
    lay = LAYOUTS[layout]
    found = step.step(lay(ROWS), lay(LABELS))
    step.load_from(network())
    assert found == step.step(ROWS, LABELS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((None, np.zeros(1)), r"^expected a tensor for \w+, got None$"),
        (([[1.0, 2.0], [3.0, 4.0]], [[0], [1]]), "not as a list of numbers"),
    ],
)
def test_what_is_no_tensor_is_called_so_and_not_missing(
    given: tuple[Any, ...], said: str, step: xe.Step
) -> None:
    with pytest.raises(xe.XEngineError, match=said):
        step(*given)


def test_a_state_is_refused_by_its_own_names_before_anything_is_overwritten(step: xe.Step) -> None:
    state = step.state_dict()
    for value, said in (
        (torch.zeros(3), r"0\.weight must have shape"),
        (torch.full((3, 4), 1e300, dtype=torch.float64), r"0\.weight must have numbers"),
        (torch.zeros(3, 4, dtype=torch.complex64), r"0\.weight must have type float32"),
    ):
        with pytest.raises(InvalidStateError, match=said):
            step.load_state_dict({**state, "0.weight": value})
    with pytest.raises(InvalidStateError, match="expected a mapping"):
        step.load_state_dict([1])  # type: ignore[arg-type]
    with pytest.raises(InvalidStateError, match="state_dict of an optimizer"):
        step.load_optimizer_state_dict({})
    assert unchanged(step)


def test_a_module_of_other_tensors_is_left_as_it_is(step: xe.Step) -> None:
    other = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 6))
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(InvalidStateError, match=r"2\.weight has shape"):
        step.load_into(other)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_another_optimizer_is_refused_and_the_module_left_as_it_is(step: xe.Step) -> None:
    module = network()
    step.step(ROWS, LABELS)
    with pytest.raises(
        InvalidStateError, match="the step's optimizer is SGD, the one given is AdamW"
    ):
        step.load_into(module, torch.optim.AdamW(module.parameters()))
    assert all(torch.equal(v, network().state_dict()[k]) for k, v in module.state_dict().items())
    with pytest.raises(InvalidStateError, match="the one given is Adam"):
        step.load_from(module, torch.optim.Adam(module.parameters()))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": 3}, "name of an optimizer, or one such as SGD"),
        ({"groups": {"0.*": 3}}, "name of an optimizer, or one such as SGD"),
        ({"loss": 3}, "name of a loss"),
        ({"loss": nn.MSELoss}, r"got the class MSELoss; give an instance: MSELoss\(\)"),
        (
            {"optimizer": torch.optim.SGD(network().parameters(), 0.1)},
            "is no parameter of the module",
        ),
        ({"budget": 2e9}, "a size in bytes is a whole number: budget=2000000000"),
        ({"loss": lambda outputs, targets: None}, "without dimensions from the loss.*got NoneType"),
        ({"loss": lambda outputs, targets: outputs - targets}, r"from the loss.*got \(2, 5\)"),
        ({"seed": -1}, "seed from 0 to"),
        ({"seed": 2**70}, "seed from 0 to"),
        ({"seed": "a"}, "a whole number for seed, got 'a'"),
        ({"micro_batches": 1.5}, r"a whole number for micro_batches, got 1\.5"),
        ({"micro_batches": 0}, "micro_batches from 1"),
        ({"lr_schedule": 0.1}, "scheduler of torch.optim, for lr_schedule, got 0.1"),
        ({"pin": ["0.*"]}, "pairs of a pattern and a device for pin"),
        ({"keep": [3]}, "patterns of names for keep, got 3"),
        ({"freeze": "*"}, "no parameter that is not frozen"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_by_its_name(
    options: dict[str, Any], said: str, compile_step: Compile
) -> None:
    with pytest.raises((TypeError, ValueError, XEngineError), match=said):
        compile_step(network(), torch.zeros(2, 4), **{"loss": "cross_entropy", **options})


@pytest.mark.parametrize("model", [3, None, nn.Linear, lambda x: x])
def test_what_is_no_model_is_named(model: Any) -> None:
    with pytest.raises(TypeError, match=f"got {type(model).__name__}"):
        xe.load_model(model)


def test_a_module_whose_forward_says_nothing_about_its_failure_is_refused() -> None:
    class Silent(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError

    with pytest.raises(UnsupportedModelError, match=r"Silent: torch\.export refuses"):
        xe.training_step(Silent(), torch.zeros(2, 4), loss="mse")


def test_one_pattern_is_a_pattern_and_not_its_letters(compile_step: Compile) -> None:
    options = {"loss": "cross_entropy", "groups": {"0.*": "adam"}}
    step = compile_step(network(), torch.zeros(2, 4), freeze="2.*", keep="0.weight", **options)
    assert [r.name for r in step.training.roles if r.use.value == "trained"] == [
        "0.weight",
        "0.bias",
    ]


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -0.1, "fast", None])
def test_a_learning_rate_that_cannot_be_meant_is_refused_before_the_step(
    rate: Any, step: xe.Step
) -> None:
    step.lr_schedule = lambda _steps: rate
    taken = step.steps_taken
    try:
        with pytest.raises(ValueError, match="a learning rate of at least 0 for step"):
            step.step(ROWS, LABELS)
    finally:
        step.lr_schedule = None
    assert unchanged(step)
    assert step.steps_taken == taken


class DynamicCache:
    """What models of Hugging Face return for generation has this name."""


def test_a_cache_among_the_outputs_says_how_to_leave_it_out() -> None:
    class Cached(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, DynamicCache]:  # type: ignore[override]
            return super().forward(x), DynamicCache()

    with pytest.raises(xe.XEngineError, match="use_cache = False"):
        xe.training_step(Cached(3, 2), torch.zeros(4, 3), loss="cross_entropy")


def test_what_is_not_finite_has_the_name_that_its_author_gave_it(compile_step: Compile) -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.Identity(), nn.Linear(4, 3))
    rows, labels = 1000 * torch.randn(8, 6), torch.randint(0, 3, (8,))
    step = compile_step(module, rows, loss="cross_entropy", optimizer=xe.SGD(3e38, momentum=0.9))
    with pytest.raises(NotFiniteError, match=r"step 1: (0|2)\.(weight|bias)( momentum)? is not"):
        xe.fit(step, [(rows, labels)] * 9, epochs=1)
    with torch.no_grad():
        module[2].weight[1, 1] = torch.nan
    step = compile_step(module, rows, loss="cross_entropy")
    with pytest.raises(NotFiniteError, match=r"^2\.weight is not finite before the first step"):
        step.guard()


class Scaled(nn.Module):  # type: ignore[misc]
    """A buffer that is read as it is, and one of which something is computed beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor([0.1, 0.2, 0.3]))
        self.register_buffer("shift", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.linear(x) * (2 * self.scale).exp() + self.shift
        return scaled


def test_a_value_that_is_compiled_in_cannot_be_loaded_anew(compile_step: Compile) -> None:
    module = Scaled()
    step = compile_step(module, ROWS, loss="mse")
    state = {name: value.clone() for name, value in module.state_dict().items()}
    state["shift"] += 5
    step.load_state_dict(state)
    module.load_state_dict(state)
    x = torch.from_numpy(ROWS)
    torch.testing.assert_close(torch.as_tensor(step.predict(x)), module(x).detach())
    before = step.state_dict()
    with pytest.raises(InvalidStateError, match=r"compiled with the value of scale.*compile that"):
        step.load_state_dict({**state, "shift": state["shift"] + 1, "scale": 2 * state["scale"]})
    for name, value in step.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_parameters_that_nothing_reads_have_their_names_in_the_module(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers[0](x)

    xe.training_step(Unread(), torch.zeros(2, 2), loss="mse")
    assert "does not depend on layers.1.bias, layers.1.weight: left out" in caplog.text
