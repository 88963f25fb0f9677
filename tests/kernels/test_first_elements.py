from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.tirx import Expr

from tests.kernels.kernels import BASELINE
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.first_elements import FromFirstElements, from_first_elements
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.relax_ir.kernel_attributes import kernel_hash

SHAPE = (5, 6, 4)


def kernel_of(of: Callable[..., Expr]) -> DeviceKernel:
    """y[i, j] of x, loops as written."""
    x = te.placeholder(SHAPE, "float32", "x")
    y = te.compute((3, 4), lambda i, j: of(x, i, j), name="y")
    func = te.create_prim_func([x, y])
    return prepare_kernel(func, resolve_target(BASELINE), schedule=lambda func, _: func)


def moved(of: Callable[..., Expr]) -> FromFirstElements:
    return from_first_elements(kernel_of(of).func)


def part(first: int, row: int) -> Callable[..., Expr]:
    return lambda x, i, j: x[first, row + i, j] * x[first, row + i, j] + x[first + 1, row + i, j]


def test_parts_of_a_tensor_are_made_by_equal_kernels() -> None:
    found = [moved(part(*at)) for at in ((0, 0), (0, 3), (2, 1), (3, 2))]
    assert [each.first for each in found] == [(0, 0), (12, 0), (52, 0), (80, 0)]
    assert len({kernel_hash(each.func) for each in found}) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda x, i, j: x[0, i, j] * x[0, i, j] + x[2, i, j],  # another distance
        lambda x, i, j: x[0, i, j] * x[0, i, j] - x[1, i, j],  # another function
        lambda x, i, j: x[0, i + 3, 3 - j] * x[0, i + 3, 3 - j] + x[1, i + 3, j],  # another order
        lambda x, i, j: tirx.if_then_else(i > 1, part(0, 0)(x, i, j), tirx.const(0, "float32")),
    ],
)
def test_other_kernels_stay_others(other: Callable[..., Expr]) -> None:
    one, another = (moved(of).func for of in (part(0, 0), other))
    assert kernel_hash(one) != kernel_hash(another)


def test_an_operand_that_is_read_from_its_first_element_stays() -> None:
    """Also where that is behind a condition, in front of which an index is less than 0."""

    def shifted(x: Expr, i: Expr, j: Expr) -> Expr:
        return tirx.if_then_else(i > 0, x[0, i - 1, j], tirx.const(0, "float32"))

    for of in (part(0, 0), shifted):
        assert moved(of).first == (0, 0)


def test_a_moved_kernel_computes_what_the_kernel_does() -> None:
    """It is given the operand from that element on."""
    x = np.random.default_rng(0).normal(size=SHAPE).astype("float32")
    kernel = kernel_of(part(2, 1))
    found = from_first_elements(kernel.func)
    given = np.zeros_like(x)
    given.flat[: x.size - found.first[0]] = x.flat[found.first[0] :]
    of_moved = made_by(replace(kernel, func=found.func), given)
    assert of_moved.tobytes() == made_by(kernel, x).tobytes()


def made_by(kernel: DeviceKernel, x: np.ndarray) -> np.ndarray:
    y = tvm.runtime.tensor(np.full((3, 4), np.nan, "float32"))
    compile_kernels([kernel], kernel.target)[kernel.symbol](tvm.runtime.tensor(x), y)
    return y.numpy()
