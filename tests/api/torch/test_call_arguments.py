"""Arguments of a step as those of the module: by position, by name, and by the keys of mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import tvm_xengine as xe
from tests.conftest import Compile
from tvm_xengine.errors import InvalidDataError

torch.manual_seed(0)
X, OTHER, TARGET = torch.randn(3, 5, 4)


class Scaled(nn.Module):
    """Takes numbers and flags beside a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(
        self, x: torch.Tensor, factor: float, flag: bool = False, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.linear(x) * factor + (x if flag else 0) + (0 if mask is None else mask)


class OfMapping(nn.Module):
    """Takes one mapping of tensors and of a number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, batch: Mapping[str, Any]) -> torch.Tensor:
        return self.linear(batch["x"]) * batch["other"] + batch["shift"]


BATCH = {"x": X, "other": OTHER, "shift": 2.0}


def loss_of(module: nn.Module, *arguments: object) -> float:
    return mse_loss(module(*arguments), TARGET).item()


def compiled(compile_step: Compile, model: object, *examples: object) -> xe.Step:
    return compile_step(model, *([examples] if examples else []), loss="mse", optimizer=xe.SGD(0))


@pytest.mark.parametrize("is_exported", [False, True])
def test_what_was_compiled_in_may_be_given_again_or_left_out(
    compile_step: Compile, is_exported: bool
) -> None:
    module = Scaled()
    expected = pytest.approx(loss_of(module, X, 3.0, True), rel=1e-5)
    program = torch.export.export(module, (X, 3.0, True))
    step = (
        compiled(compile_step, program)
        if is_exported
        else compiled(compile_step, module, X, 3.0, True)
    )
    assert step(X, TARGET) == expected
    assert step(X, 3.0, TARGET) == expected
    assert step(X, 3.0, True, TARGET) == expected
    assert step(X, 3.0, True, None, TARGET) == expected
    assert step(x=X, factor=3, labels=TARGET) == expected
    for other in ({"factor": 4.0}, {"flag": False}):
        with pytest.raises(InvalidDataError, match="was compiled in, got"):
            step(x=X, labels=TARGET, **other)
    with pytest.raises(InvalidDataError, match=r"factor=3\.0 was compiled in, got 4\.0; compile"):
        step(X, 4.0, True, TARGET)
    with pytest.raises(InvalidDataError, match=r"got 3; compiled in were factor=3\.0, flag=True"):
        step(X, 3.0, True, OTHER, TARGET)


@pytest.mark.parametrize("is_exported", [False, True])
def test_mappings_are_read_by_their_keys(compile_step: Compile, is_exported: bool) -> None:
    module = OfMapping()
    expected = pytest.approx(loss_of(module, BATCH), rel=1e-5)
    step = compiled(
        compile_step, *([torch.export.export(module, (BATCH,))] if is_exported else [module, BATCH])
    )
    swapped = dict(reversed(BATCH.items()))
    assert step(BATCH, TARGET) == expected
    assert step(swapped, TARGET) == expected
    assert step({"other": OTHER, "x": X}, TARGET) == expected
    predicted = step.predict(swapped)
    np.testing.assert_allclose(predicted, module(BATCH).detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(InvalidDataError, match=r"expected a mapping with \['x', 'other'\], got"):
        step({"x": X, "others": OTHER}, TARGET)
    with pytest.raises(InvalidDataError, match=r"batch_shift=2\.0 was compiled in|shift"):
        step({**BATCH, "shift": 1.0}, TARGET)


def test_tensors_beside_constants_in_a_structure_are_inputs(compile_step: Compile) -> None:
    module = OfMapping()
    step = compiled(compile_step, module, BATCH)
    zeros = torch.zeros_like(OTHER)
    expected = loss_of(module, {**BATCH, "other": zeros})
    assert step({**BATCH, "other": zeros}, TARGET) == pytest.approx(expected, rel=1e-5)
