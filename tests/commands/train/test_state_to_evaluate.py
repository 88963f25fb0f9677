"""A state that is evaluated is that of the model, with nothing less and nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tvm_xengine.errors import InvalidStateError, NotFiniteError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.model.metrics import metrics_of_loss
from tvm_xengine.session.loop.evaluate_state import evaluate_state
from tvm_xengine.session.training_data import training_data
from tvm_xengine.training.losses import CrossEntropy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: {**state, "0.wieght": state["0.weight"]}, "has 0.wieght, which the model"),
        (lambda state: {k: v for k, v in state.items() if k != "0.weight"}, "lacks 0.weight"),
        (
            lambda state: {k: v for k, v in state.items() if k != "1.running_var"},
            "lacks 1.running_var",
        ),
        (dict, None),
    ],
)
def test_names_that_are_missing_or_unknown_are_refused(change, said, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    x, labels = torch.randn(8, 4), torch.arange(8) % 3
    training = xe.training_step(module, x, loss="cross_entropy")
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=labels.numpy())
    data = training_data(training, str(tmp_path / "data.npz"))
    state = change({name: value.numpy() for name, value in module.state_dict().items()})
    if said is None:
        found = evaluate_state(training, state, data, xe.processor())
        expected = nn.functional.cross_entropy(module.eval()(x), labels)
        assert found["loss"] == pytest.approx(expected.item(), rel=1e-5)
        return
    with pytest.raises(InvalidStateError, match=said):
        evaluate_state(training, state, data, xe.processor())


@pytest.mark.parametrize(
    ("weight", "said", "tensor"),
    [
        (np.nan, "0.weight of the state has a NaN in 1 of 12 elements; take a state", "0.weight"),
        (np.inf, "for the samples 0 to 7 .* 0.weight of the state has an infinity", "0.weight"),
        (3e38, "the state is finite, and the output output is not", "output"),
    ],
)
def test_a_state_that_makes_no_numbers_is_an_error_that_says_where(
    weight: float, said: str, tensor: str, tmp_path: Path
) -> None:
    module = nn.Sequential(nn.Linear(4, 3))
    x, labels = torch.full((8, 4), 2.0), torch.arange(8) % 3
    training = xe.training_step(module, x, loss="cross_entropy")
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=labels.numpy())
    data = training_data(training, str(tmp_path / "data.npz"))
    state = {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}
    state["0.weight"][1, 1] = weight
    with pytest.raises(NotFiniteError, match=said) as caught:
        evaluate_state(training, state, data, xe.processor())
    assert caught.value.tensor == tensor


def test_fewer_samples_than_a_batch_are_evaluated(tmp_path: Path) -> None:
    module = nn.Linear(4, 3)
    x, labels = torch.randn(8, 4), torch.arange(8) % 3
    training = xe.training_step(module, x, loss="cross_entropy")
    np.savez(tmp_path / "data.npz", x=x[:5].numpy(), y=labels[:5].numpy())
    data = training_data(training, str(tmp_path / "data.npz"))
    found = evaluate_state(
        training, {k: v.numpy() for k, v in module.state_dict().items()}, data, xe.processor()
    )
    expected = nn.functional.cross_entropy(module(x[:5]), labels[:5])
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_labels_that_do_not_count_are_in_no_metric() -> None:
    scores = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]
    loss = CrossEntropy(ignore_index=7)
    found = metrics_of_loss(loss, cast("ForwardModel", None))["accuracy"](scores, [0, 2, 7, 7])
    assert found == 0.5
