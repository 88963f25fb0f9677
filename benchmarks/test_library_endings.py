"""What does it save to add a bias or another tensor inside oneDNN's call, and not behind it?

The kernel with all of it in the call is timed in turns with the call alone and generated code
behind it that writes over its result. Thread-CPU time; run with ``-s`` to see the ratios.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tvm import relax

from benchmarks.test_kernels import time_in_turns_us
from tests.libraries.onednn_twins import NATIVE, Body, kernel_of, needs_onednn
from tvm_xengine.codegen.compile import compile_kernels
from tvm_xengine.codegen.device_kernel import DeviceKernel
from tvm_xengine.cost_models.timing import call_of, example_arguments
from tvm_xengine.libraries.context import KernelContext
from tvm_xengine.libraries.onednn import claim
from tvm_xengine.libraries.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.kernels.linear import linear

pytestmark = needs_onednn

MOST = 1.1
"""A fused ending that is slower than this, relative to the one behind, should not be fused."""


@dataclass(frozen=True)
class Case:
    """A product and the shapes of its inputs, of what is added to it last."""

    name: str
    body: Body
    shapes: tuple[tuple[int, ...], ...]


def biased(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
    made = emitter.bind(relax.op.nn.conv2d(*params[:2]), "made")
    return emitter.bind(
        relax.op.nn.relu(emitter.bind(relax.op.add(made, params[2]), "sum")), "relu"
    )


def added(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
    made = emitter.call(linear, params[:2], "made")
    return emitter.bind(relax.op.add(made, params[2]), "sum")


CASES = [
    *(
        Case(f"pointwise {i} -> {o}, {p} x {p}", biased, ((8, i, p, p), (o, i, 1, 1), (1, o, 1, 1)))
        for i, o, p in ((64, 16, 55), (16, 64, 55), (256, 48, 27), (512, 64, 13), (480, 192, 14))
    ),
    *(
        Case(f"product {i} -> {o}, 1024 rows", added, ((1024, i), (o, i), (1024, o)))
        for i, o in ((256, 256), (1024, 256), (256, 1024))
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_ending_in_the_call(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    func = kernel_of(case.body, case.shapes)
    inside = prepare_onednn_kernel(func, NATIVE, "inside")
    with monkeypatch.context() as patched:
        patched.setattr(claim, "ENDS_WITH_BIAS_AND_RELU", frozenset())
        patched.setattr(claim, "ADDS_A_TENSOR", frozenset())
        behind = prepare_onednn_kernel(func, NATIVE, "behind")
    assert inside is not None and behind is not None
    inside_us, behind_us = time_in_turns_us([runner(inside), runner(behind)])
    ratio = inside_us / behind_us
    sys.stdout.write(f"\n{case.name:30} {inside_us:8.0f} us, behind {behind_us:8.0f}: {ratio:.2f}")
    assert ratio < MOST


def runner(kernel: DeviceKernel) -> Callable[[], object]:
    """Runs a kernel on tensors of its own."""
    assert kernel.library is not None
    compiled = compile_kernels([kernel], kernel.target)[kernel.symbol]
    context = KernelContext(kernel.library)
    arguments = [*example_arguments(call_of(kernel)), context.tensor]

    def run(_alive: KernelContext = context) -> object:
        return compiled(*arguments)

    return run
