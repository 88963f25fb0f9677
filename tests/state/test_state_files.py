"""Files of trained tensors are read by what they hold where their names do not say it."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from tvm_xengine.errors import InvalidStateError
from tvm_xengine.state.state_file import read_state


@pytest.mark.parametrize("name", ["run.ckpt", "run", "run.safetensors"])
def test_a_checkpoint_of_a_run_may_have_any_name(name: str, tmp_path: Path) -> None:
    tensors = {"model/fc.weight": np.ones((2, 3), "float32"), "optimizer/step": np.array(3)}
    (tmp_path / name).write_bytes(save(tensors))
    assert list(read_state(tmp_path / name)) == ["fc.weight"]


def test_another_file_is_refused_with_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "run.ckpt").write_bytes(b"PK\3\4 of PyTorch")
    with pytest.raises(InvalidStateError, match=r"expected a checkpoint of a run, or .*\.npz"):
        read_state(tmp_path / "run.ckpt")


@pytest.mark.parametrize("is_archive", [True, False])
def test_a_state_that_would_execute_code_is_refused_in_one_line(
    is_archive: bool, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "state.pt"
    hit = tmp_path / "hit"
    made = type("Made", (), {"__reduce__": lambda _: (Path.touch, (hit,))})()
    path.write_bytes(pickle.dumps(made))
    if is_archive:
        torch.save({"w": made}, path)
    with pytest.raises(InvalidStateError) as refusal:
        read_state(path)
    assert "would execute code" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert "weights_only" not in str(refusal.value)
    assert not hit.exists()
    assert not recwarn.list


def test_torchscript_is_no_state_and_pytorchs_advice_to_run_it_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    torch.jit.save(torch.jit.script(torch.nn.Linear(3, 2)), path)
    with pytest.raises(
        InvalidStateError, match=r"holds TorchScript.*save the state_dict\(\)"
    ) as refusal:
        read_state(path)
    assert "weights_only" not in str(refusal.value)
