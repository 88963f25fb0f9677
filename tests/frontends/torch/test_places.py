"""Variables know the line of the module's source that computes them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from tvm_xengine.frontends.place import Place
from tvm_xengine.frontends.torch.module import trace_module
from tvm_xengine.frontends.torch.program.nodes import line_of

_PYTORCH = Path(torch.__file__).parent


class _Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = self.stem(x)
        return torch.tanh(x)


def test_each_variable_has_the_line_of_the_forward_function_that_computes_it() -> None:
    places = trace_module(_Net(), torch.zeros(2, 4), training=True).model.places
    source, first = inspect.getsourcelines(_Net.forward)
    number = {text.strip(): first + k for k, text in enumerate(source)}
    own = Path(__file__).name
    again, last = (f"{own}:{number[text]}" for text in ("x = self.stem(x)", "return torch.tanh(x)"))
    stem = f"{own}:{number['x = self.stem(x)'] - 1}"
    assert places["stem_0"] == Place("stem.0", stem)
    assert places["stem_1"] == Place("stem.1", stem)
    assert places["stem_1_relu"] == Place("stem.1", again, 2)
    assert places["tanh"] == Place("", last)


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        (
            f'File "/a/net.py", line 3, in forward\n x\n File "{_PYTORCH}/nn/conv.py", line 9',
            "net.py:3",
        ),
        ('File "C:\\\\a\\\\net.py", line 3, in forward', "net.py:3"),
        ('File "/a/torch.py", line 4, in forward', "torch.py:4"),
        ('File "/a/torch/net.py", line 4, in forward', "net.py:4"),
        (f'File "{_PYTORCH}/nn/conv.py", line 9', ""),
        ("", ""),
    ],
)
def test_the_innermost_line_outside_of_pytorch_is_taken(trace: str, line: str) -> None:
    assert line_of(trace) == line
