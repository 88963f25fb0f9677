"""A state that is evaluated is that of the model, with nothing less and nothing more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tvm_xengine.errors import InvalidStateError
from tvm_xengine.session.loop.evaluate_state import evaluate_state
from tvm_xengine.session.training_data import training_data


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
