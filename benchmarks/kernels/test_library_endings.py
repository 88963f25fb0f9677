"""What does it save to add a bias or another tensor inside oneDNN's call, and not behind it?

The kernel with all of it in the call is timed in turns with the call alone and generated code
behind it that writes over its result, and pointwise convolutions as products in turns with oneDNN's
own convolution of blocked tensors. Thread-CPU time; run with ``-s`` to see the ratios.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tvm import relax, tirx

from benchmarks.kernels.test_kernels import time_in_turns_us
from tests.kernels.onednn.onednn_twins import NATIVE, Body, kernel_of, needs_onednn
from tvm_xengine.cost_models.measure.timing import call_of, example_arguments
from tvm_xengine.kernels.library.context import KernelContext
from tvm_xengine.kernels.onednn import claim
from tvm_xengine.kernels.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.kernels.onednn.primitives import convolution
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.te.convolution import conv_data_gradient
from tvm_xengine.kernels.te.linear import linear, linear_data_gradient
from tvm_xengine.training.emitter import Emitter

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


def residual_product(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
    return _added(emitter, emitter.call(linear, params[:2], "made"), params[2])


def gradient_of_product(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
    return _added(emitter, emitter.call(linear_data_gradient, params[:2], "made"), params[2])


def residual_pointwise(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
    return _added(emitter, emitter.bind(relax.op.nn.conv2d(*params[:2]), "made"), params[2])


def gradient_of_pointwise(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
    data_shape = tuple(int(extent) for extent in params[2].ty.shape)
    options = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    made = emitter.call(conv_data_gradient, params[:2], "made", data_shape=data_shape, **options)
    return _added(emitter, made, params[2])


def _added(emitter: Emitter, made: relax.Expr, other: relax.Var) -> relax.Expr:
    return emitter.bind(relax.op.add(made, other), "sum")


POINTWISE = [
    Case(
        f"pointwise {i} -> {o}, {n} x {p} x {p}", biased, ((n, i, p, p), (o, i, 1, 1), (1, o, 1, 1))
    )
    for i, o, n, p in (
        (64, 16, 8, 55),
        (16, 64, 8, 55),
        (256, 48, 8, 27),
        (512, 64, 8, 13),
        (480, 192, 8, 14),
        (64, 2, 2, 128),
    )
]

ADDED = [
    *(
        Case(f"product {i} -> {o}, {what}", body, ((1024, i), weight, (1024, o)))
        for i, o in ((256, 256), (1024, 256), (256, 1024))
        for what, body, weight in (
            ("residual", residual_product, (o, i)),
            ("other gradient", gradient_of_product, (i, o)),
        )
    ),
    *(
        Case(f"pointwise {i} -> {o}, {what}", body, ((8, i, p, p), weight, (8, o, p, p)))
        for i, o, p in ((64, 64, 28), (256, 64, 28), (64, 256, 28))
        for what, body, weight in (
            ("residual", residual_pointwise, (o, i, 1, 1)),
            ("other gradient", gradient_of_pointwise, (i, o, 1, 1)),
        )
    ),
]


@pytest.mark.parametrize("case", [*POINTWISE, *ADDED], ids=lambda case: case.name)
def test_an_ending_in_the_call(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    func = kernel_of(case.body, case.shapes)
    inside = runner(func)
    with monkeypatch.context() as patched:
        patched.setattr(claim, "ENDS_WITH_BIAS_AND_RELU", frozenset())
        patched.setattr(claim, "ADDS_A_TENSOR", frozenset())
        behind = runner(func)
    assert compared(case, inside, behind, "behind") < MOST


@pytest.mark.parametrize("case", POINTWISE, ids=lambda case: case.name)
def test_a_product_instead_of_a_blocked_convolution(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    func = kernel_of(case.body, case.shapes)
    product = runner(func)
    with monkeypatch.context() as patched:
        patched.setattr(convolution, "pointwise", lambda _call, _library: None)
        blocked = runner(func)
    assert compared(case, product, blocked, "blocked") < MOST


def compared(
    case: Case, chosen: Callable[[], object], other: Callable[[], object], what: str
) -> float:
    """Time of a kernel relative to another's."""
    chosen_us, other_us = time_in_turns_us([chosen, other])
    ratio = chosen_us / other_us
    sys.stdout.write(f"\n{case.name:36} {chosen_us:8.0f} us, {what} {other_us:8.0f}: {ratio:.2f}")
    return ratio


def runner(func: tirx.PrimFunc) -> Callable[[], object]:
    """Runs oneDNN's kernel for a function on tensors of its own."""
    kernel = prepare_onednn_kernel(func, NATIVE, "kernel")
    assert kernel is not None and kernel.library is not None
    compiled = compile_kernels([kernel], kernel.target)[kernel.symbol]
    context = KernelContext(kernel.library)
    arguments = [*example_arguments(call_of(kernel)), context.tensor]

    def run(_alive: KernelContext = context) -> object:
        return compiled(*arguments)

    return run
