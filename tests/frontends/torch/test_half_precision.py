"""Frozen parameters in float16 and bfloat16: adapters on a base that keeps its narrow storage."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.training.autograd import exported, worst_gradient_error
from tests.training.running import ReferenceRun
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.arrays import to_array
from tvm_xengine.state.state_file import read_state, write_state
from tvm_xengine.training.build import build_training_step

DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


class Adapted(nn.Module):
    """A frozen layer, cast to float32 or computed as it is, with a low-rank correction."""

    def __init__(self, inner: int, outer: int, dtype: torch.dtype, *, is_cast: bool) -> None:
        super().__init__()
        self.base = nn.Linear(inner, outer).to(dtype).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, inner) / 3)
        self.up = nn.Parameter(torch.randn(outer, 2) / 9)
        self.is_cast, self.dtype = is_cast, dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_cast:
            y = functional.linear(x, self.base.weight.float(), self.base.bias.float())
        else:
            y = self.base(x.to(self.dtype)).float()
        return y + x @ self.down.T @ self.up.T


class Network(nn.Module):
    """A frozen table and norms of a short type between adapted layers."""

    def __init__(self, dtype: torch.dtype, *, is_cast: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(13, 16).to(dtype).requires_grad_(False)
        self.first = Adapted(16, 8, dtype, is_cast=is_cast)
        self.last = Adapted(8, 10, dtype, is_cast=is_cast)
        kinds = nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.RMSNorm(8), nn.BatchNorm1d(8).eval()
        self.norms = nn.ModuleList(kinds).to(dtype).requires_grad_(False)
        self.is_cast, self.dtype = is_cast, dtype

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(self.table(tokens).float().mean(1)))
        if self.is_cast:
            return self.last(functional.layer_norm(x, (8,), self.norms[0].weight.float()))
        y = x.to(self.dtype)
        for norm in self.norms:
            y = norm(y)
        y = y * y.softmax(-1) + y.exp().cumsum(-1).log() - y.logsumexp(-1, keepdim=True)
        y = functional.interpolate(y[:, None], 8, mode="linear", align_corners=True)[:, 0]
        return self.last((y + y.std(-1, keepdim=True)).float())


class Autocast(nn.Module):
    """Products in bfloat16, and what autocast keeps in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.norm(torch.relu(self.first(x)))
            return self.last(hidden.softmax(-1)).float()


def test_autocast_in_a_module_is_that_of_pytorch_but_for_roundings() -> None:
    torch.manual_seed(0)
    module, x = Autocast(), torch.randn(8, 16)
    model = exported(module, x)
    assert "bfloat16" in model.mod.script()
    (note,) = model.notes
    assert "forward opens torch.autocast: a kernel rounds to bfloat16 what it stores" in note
    labels = torch.randint(0, 5, (8,))
    assert worst_gradient_error(model, module, x, labels) < 2.0**-6


@DTYPES
@pytest.mark.parametrize(("is_cast", "error"), [(True, 1e-6), (False, 2e-2)])
def test_steps_on_a_frozen_base_are_those_of_pytorch(
    dtype: torch.dtype, is_cast: bool, error: float
) -> None:
    torch.manual_seed(0)
    module = Network(dtype, is_cast=is_cast)
    tokens, labels = torch.randint(0, 13, (8, 5)), torch.randint(0, 10, (8,))
    model = exported(module, tokens)
    run = ReferenceRun(build_training_step(model))
    trained = [one for one in module.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1, momentum=0.9)
    for _ in range(3):
        loss = functional.cross_entropy(module(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = run(tokens.numpy(), labels.numpy(), lr=0.1)["loss"]
        assert found == pytest.approx(loss.item(), abs=error)
    state = module.state_dict()
    present = [role for role in model.roles if role.variable in run.state and role.name in state]
    assert {"first.up", "table.weight", "last.base.bias"} <= {role.name for role in present}
    for role in present:
        value, wanted = run.state[role.variable], to_array(state[role.name])
        assert value.dtype == wanted.dtype
        assert value.nbytes == wanted.nbytes
        np.testing.assert_allclose(value.astype("f"), wanted.astype("f"), atol=error, rtol=error)


@DTYPES
def test_a_trained_parameter_of_a_short_type_is_refused_with_advice(dtype: torch.dtype) -> None:
    module = nn.Sequential(nn.Linear(4, 3)).to(dtype)
    model = exported(module, torch.randn(2, 4, dtype=dtype))
    with pytest.raises(UnsupportedModelError, match=r"in 0\.weight; store them as float32.*freeze"):
        build_training_step(model)


@DTYPES
@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "a.npz"])
def test_tensors_of_short_types_are_written_and_read(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    state = {"w": to_array(torch.randn(3, 2).to(dtype)), "s": np.array(2.0, "f")}
    write_state(state, tmp_path / name)
    found = read_state(tmp_path / name)
    assert found["w"].shape == (3, 2)
    assert np.array_equal(found["w"].astype("f"), state["w"].astype("f"))
    if name != "a.npz":  # which has no bfloat16
        assert found["w"].dtype == state["w"].dtype
