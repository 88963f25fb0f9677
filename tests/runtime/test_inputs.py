"""A step takes what it was made for and refuses everything else before it overwrites anything."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tests.passes.small_step import two_cpus
from tests.runtime.trained import train
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.errors import InvalidInputError, NotFiniteError
from tvm_xengine.frontends.torch.read import from_torch_export
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.transactions import Transactions
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.optimizers import SGD

Arrays = Mapping[str, NDArray[np.generic]]

CLASSES, TOKENS = 5, 11


class Tagger(nn.Module):
    """A class for each text: two kinds of integer inputs, tokens and labels."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.table(tokens)).mean(1))


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def step_of(module: nn.Module, example: torch.Tensor) -> tuple[StepExecutable, Arrays]:
    torch.manual_seed(0)
    exported = torch.export.export(module.eval(), (example,))
    training = build_training_step(from_torch_export(exported), optimizer=SGD(momentum=0.9))
    lowered = lower_step(training.mod, two_cpus())
    problem = make_problem(lowered, lambda kernels: {k.symbol: OpCost(1.0) for k in kernels})
    executable = build_step(lowered, plan_keep_all(problem, "cpu"))
    executable.write(training.initial_state)
    return executable, training.initial_state


@pytest.fixture(scope="module")
def tagger() -> tuple[StepExecutable, Arrays]:
    return step_of(Tagger(), torch.zeros((4, 3), dtype=torch.int64))


@pytest.fixture(scope="module")
def scorer() -> tuple[StepExecutable, Arrays]:
    return step_of(Scorer(), torch.zeros((4, 6)))


def batch_of(executable: StepExecutable, **changes: object) -> dict[str, object]:
    """A batch that is right, but for `changes`; None leaves an input out."""
    (name,) = (n for n in executable.names(Role.BATCH) if n != "labels")
    view = executable.interface.inputs[name]
    batch: dict[str, object] = {
        name: np.zeros(view.shape, view.dtype),
        "labels": np.arange(4) % CLASSES,
        "lr": 0.1,
    }
    for key, value in changes.items():
        batch[name if key == "data" else key] = value
    return {key: value for key, value in batch.items() if value is not None}


WRONG = {
    "no data": {"data": None},
    "no labels": {"labels": None},
    "no learning rate": {"lr": None},
    "one more": {"extra": np.zeros(3)},
    "a label too large": {"labels": np.array([0, 1, 2, CLASSES])},
    "a label below 0": {"labels": np.array([0, 1, -1, 2])},
    "float labels": {"labels": np.array([0.9, 1.0, 2.0, 3.0])},
    "labels of another shape": {"labels": np.zeros((4, 1), "int64")},
    "text as labels": {"labels": np.array(["a", "b", "c", "d"])},
    "text as a number": {"lr": "0.1"},
    "a complex number": {"lr": 1j},
    "nothing": {"lr": np.array(None)},
    "a larger batch": {"data": np.zeros((5, 6), "float32")},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_is_refused_before_anything_is_overwritten(
    name: str, scorer: tuple[StepExecutable, Arrays]
) -> None:
    executable, initial = scorer
    executable.write(initial)
    held = {device: arena.read().tobytes() for device, arena in executable.arenas.items()}
    with pytest.raises(InvalidInputError, match=r"expected|must"):
        executable.step(batch_of(executable, **WRONG[name]))  # type: ignore[arg-type]
    assert held == {device: arena.read().tobytes() for device, arena in executable.arenas.items()}


def test_the_message_names_the_input_and_says_what_was_expected_and_found(
    scorer: tuple[StepExecutable, Arrays],
) -> None:
    executable, _ = scorer
    with pytest.raises(
        InvalidInputError, match=r"labels must be in 0\.\.4 or -100, got 9 at \(2,\)"
    ):
        executable.step(batch_of(executable, labels=np.array([0, 1, 9, 2])))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="labels must have type int64, got float64"):
        executable.step(batch_of(executable, labels=np.zeros(4)))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'labels' is missing"):
        executable.step(batch_of(executable, labels=None))  # type: ignore[arg-type]


def test_ignored_labels_are_taken(scorer: tuple[StepExecutable, Arrays]) -> None:
    executable, initial = scorer
    executable.write(initial)
    executable.step(batch_of(executable, labels=np.array([0, -100, 1, 2], "int32")))  # type: ignore[arg-type]


@pytest.mark.parametrize("token", [-1, TOKENS, 2**40])
def test_a_token_outside_the_table_is_refused(
    token: int, tagger: tuple[StepExecutable, Arrays]
) -> None:
    executable, _ = tagger
    executable.step(batch_of(executable, data=np.full((4, 3), TOKENS - 1)))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=rf"must be in 0\.\.{TOKENS - 1}"):
        executable.step(batch_of(executable, data=np.full((4, 3), token)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": np.full((4, 6), np.nan, "float32")}, "x"),
        ({"data": np.full((4, 6), np.inf, "float32")}, "x"),
        ({"lr": np.inf}, "lr"),
        ({"data": np.full((4, 6), 1e20, "float32"), "lr": 1e30}, "weight"),
    ],
)
def test_a_step_that_is_not_finite_leaves_the_state_of_the_last_good_one(
    change: dict[str, object], named: str, scorer: tuple[StepExecutable, Arrays]
) -> None:
    executable, initial = scorer
    rng = np.random.default_rng(0)
    good = [batch_of(executable, data=rng.random((4, 6), "float32")) for _ in range(3)]
    executable.write(initial)
    for batch in good:
        executable.step(batch)  # type: ignore[arg-type]
    expected = {name: array.tobytes() for name, array in executable.read_state().items()}
    bad = batch_of(executable, **change)
    with pytest.raises(NotFiniteError, match="step 4") as caught:
        train(executable, initial, iter([*good, bad]), 4)  # type: ignore[list-item]
    assert named in caught.value.tensor
    assert expected == {name: a.tobytes() for name, a in executable.read_state().items()}


def test_the_guard_can_be_switched_off(scorer: tuple[StepExecutable, Arrays]) -> None:
    executable, initial = scorer
    bad = batch_of(executable, data=np.full((4, 6), np.nan, "float32"))
    trace, _ = train(executable, initial, iter([bad]), 1, guard=False)  # type: ignore[list-item]
    assert len(trace.losses) == 1


def test_the_guard_says_what_it_costs(scorer: tuple[StepExecutable, Arrays]) -> None:
    executable, initial = scorer
    executable.write(initial)
    updated = executable.interface.updated
    assert Transactions(executable).memory_bytes == sum(initial[name].nbytes for name in updated)


def test_a_state_that_is_not_finite_at_the_start_is_named(
    scorer: tuple[StepExecutable, Arrays],
) -> None:
    executable, initial = scorer
    name = executable.interface.updated[0]
    executable.write({**initial, name: np.full_like(initial[name], np.nan)})
    with pytest.raises(NotFiniteError, match="before the first step") as caught:
        Transactions(executable)
    assert caught.value.tensor == name
