"""What is said of a library call is what the library runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.kernels.onednn.onednn_twins import needs_products
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.product import product_of
from tvm_xengine.kernels.onednn.library import load_onednn
from tvm_xengine.kernels.onednn.operations import describe

HERE: dict[str, Any] = {"threads": 1, "source": "onednn"}
WINDOW = (("dilation", (1, 1)), ("groups", 1), ("padding", (1, 1, 1, 1)), ("strides", (2, 2)))
CONVOLUTION = LibraryCall(
    "convolution", WINDOW, ((2, 16, 9, 9), (24, 16, 3, 3), (2, 24, 5, 5)), **HERE
)
GROUPS = LibraryCall(
    "convolution",
    tuple((name, 2 if name == "groups" else value) for name, value in WINDOW),
    ((2, 64, 9, 9), (64, 32, 3, 3), (2, 64, 5, 5)),
    **HERE,
)
TURNED = (("transpose_left", True), ("transpose_right", False))
CALLS = (
    CONVOLUTION,
    GROUPS,
    LibraryCall(
        "conv_data_gradient", WINDOW, ((2, 24, 5, 5), (24, 16, 3, 3), (2, 16, 9, 9)), **HERE
    ),
    LibraryCall(
        "conv_weight_gradient", WINDOW, ((2, 16, 9, 9), (2, 24, 5, 5), (24, 16, 3, 3)), **HERE
    ),
    LibraryCall("linear", (), ((6, 7, 40), (24, 40), (6, 7, 24)), **HERE),
    LibraryCall("linear_data_gradient", (), ((42, 24), (24, 40), (42, 40)), **HERE),
    LibraryCall("linear_weight_gradient", (), ((42, 40), (42, 24), (24, 40)), **HERE),
    LibraryCall("batch_matmul", TURNED, ((5, 8, 6), (5, 8, 7), (5, 6, 7)), **HERE),
    LibraryCall("batch_matmul", TURNED, ((5, 8, 6), (5, 8, 7), (6, 7)), **HERE),
    LibraryCall(
        "layer_norm_forward",
        (("epsilon", 1e-5),),
        ((4, 6, 8), (8,), (8,), (4, 6, 8), (4, 6), (4, 6)),
        **HERE,
        num_outputs=3,
    ),
)


def torch_flops(call: LibraryCall) -> int:
    """What PyTorch counts for the same operation."""
    shapes, kind = call.shapes, call.operation
    if kind.startswith("conv"):
        data, weight = {
            "convolution": (0, 1),
            "conv_data_gradient": (-1, 1),
            "conv_weight_gradient": (0, -1),
        }[kind]
        x, w = (torch.zeros(shapes[k]) for k in (data, weight))
        with FlopCounterMode(display=False) as counter:
            torch.nn.functional.conv2d(x, w, stride=2, padding=1, groups=call.number("groups"))
    else:
        with FlopCounterMode(display=False) as counter:
            if kind == "batch_matmul":
                torch.zeros(shapes[0]).transpose(-1, -2) @ torch.zeros(shapes[1])
            else:
                layer = torch.nn.Linear(40, 24, bias=False)
                layer(torch.zeros(42, 40))
    return counter.get_total_flops()


@pytest.mark.parametrize("call", [c for c in CALLS if "norm" not in c.operation], ids=str)
def test_a_product_has_as_many_operations_as_pytorch_counts(call):
    product = product_of(call)
    assert product is not None
    counted = 2 * product.batch * product.rows * product.columns * product.inner
    assert counted == torch_flops(call)


def test_what_multiplies_nothing_is_no_product():
    assert product_of(CALLS[-1]) is None


SAYS = "kernel"
MAKES_ALL = f"""
from tests.kernels.onednn.test_stages import CALLS
from tvm_xengine.kernels.library.context import KernelContext
for call in CALLS:
    print("{SAYS}", flush=True)
    KernelContext(call)
"""


@needs_products
def test_stages_are_the_primitives_that_onednn_makes():
    """oneDNN says itself what it creates for a kernel that is set up."""
    done = subprocess.run(
        [sys.executable, "-c", MAKES_ALL],
        env={**os.environ, "ONEDNN_VERBOSE": "profile_create"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    _, *parts = done.stdout.split(f"{SAYS}\n")
    for call, part in zip(CALLS, parts, strict=True):
        made = re.findall(r"create:\w+,cpu,(\w+),([\w:]+),", part)
        program = describe(call, load_onednn())
        assert program is not None
        stages = program.stages
        assert [name for _, name in made] == [stage.implementation for stage in stages]
        assert [kind == "reorder" for kind, _ in made] == [stage.is_copy for stage in stages]
        assert all(stage.tensors_bytes > 0 for stage in stages)
