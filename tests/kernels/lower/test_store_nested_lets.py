"""Chains of transcendental functions: that they compile at all, and compute the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, te, tirx

from tests.kernels.kernels import NATIVE, run_kernel
from tvm_xengine.kernels.lower.store_nested_lets import StoreNestedLets

_ERF = np.vectorize(math.erf)


def _chosen(value, i):
    return te.exp(tirx.Select(i % 2 == 0, te.tanh(value), 0.5))


FUNCTIONS = {
    "tanh": (lambda v, i: te.tanh(v), lambda v, i: np.tanh(v)),
    "exp": (lambda v, i: te.exp(v * -0.5), lambda v, i: np.exp(v * -0.5)),
    "sigmoid": (lambda v, i: te.sigmoid(v), lambda v, i: 1 / (1 + np.exp(-v))),
    "erf": (lambda v, i: te.erf(v) + 0.5, lambda v, i: _ERF(v) + 0.5),
    "softplus": (lambda v, i: te.log(1 + te.exp(v)), lambda v, i: np.log(1 + np.exp(v))),
    "padded": (
        lambda v, i: te.tanh(tirx.if_then_else(i > 1, v, 0.5)),
        lambda v, i: np.tanh(np.where(i > 1, v, 0.5)),
    ),
    "chosen": (_chosen, lambda v, i: np.exp(np.where(i % 2 == 0, np.tanh(v), 0.5))),
}


def chain(functions, x):
    """Ours and numpy's, each function of what the one before computed, kept in one expression."""
    data = te.placeholder(x.shape, "float32", name="x")

    def element(i):
        value = data[i]
        for ours, _ in functions:
            value = ours(value, i)
        return value

    expected = x.astype("float64")
    for _, numpys in functions:
        expected = numpys(expected, np.arange(len(x)))
    (y,) = run_kernel(
        te.create_prim_func([data, te.compute(x.shape, element, name="y")]), NATIVE, x
    )
    return y, expected


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 12])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_chain_of_any_depth_compiles_and_is_right(name, depth):
    x = np.linspace(-2, 2, 1001, dtype="float32")
    ours, expected = chain([FUNCTIONS[name]] * depth, x)
    np.testing.assert_allclose(ours, expected, rtol=3e-6, atol=1e-6)


def test_a_chain_of_different_functions_compiles_and_is_right():
    x = np.linspace(0.1, 1.5, 999, dtype="float32")
    names = ["softplus", "chosen", "tanh", "exp", "padded", "sigmoid", "erf", "tanh"]
    ours, expected = chain([FUNCTIONS[name] for name in names], x)
    np.testing.assert_allclose(ours, expected, rtol=3e-6)


def test_what_a_condition_guards_is_not_computed_where_it_fails():
    """Loads before the first element, which must not happen, below a condition in a let's value."""
    x = np.linspace(-1, 1, 64, dtype="float32")
    data = te.placeholder(x.shape, "float32", name="x")

    def element(i):
        return te.exp(
            tirx.if_then_else(i >= 1 << 20, te.tanh(te.tanh(data[i * (1 << 20)])), data[i])
        )

    (y,) = run_kernel(
        te.create_prim_func([data, te.compute(x.shape, element, name="y")]), NATIVE, x
    )
    np.testing.assert_allclose(y, np.exp(x.astype("float64")), rtol=3e-6)


def function(value):
    x, y = (tirx.decl_buffer((4,), "float32", name=name) for name in "xy")
    body = tirx.BufferStore(y, value(x[1]), [0])
    return tvm.IRModule({"main": tirx.PrimFunc([x, y], body).with_attr("global_symbol", "main")})


def lets_of(mod):
    found = []
    tvm_ffi.structural_walk(mod["main"].body, (tirx.Let, found.append))
    return found


def squared(value):
    var = ir.Var("v", "float32")
    return tirx.Let(var, value, var * var)


def test_lets_that_are_not_nested_stay():
    mod = function(lambda x: squared(x) + squared(x + 1.0))
    tvm.ir.assert_structural_equal(StoreNestedLets()(mod), mod)


def test_one_variable_bound_twice_keeps_both_values():
    """Copies of code may hold the same variable with another value."""
    var = ir.Var("v", "float32")
    mod = function(
        lambda x: squared(tirx.Let(var, x, var + 1.0) * tirx.Let(var, x * 2.0, var + 3.0))
    )
    stored = StoreNestedLets()(mod)
    assert not lets_of(stored)
    compiled = tvm.compile(stored, "llvm")
    x, y = tvm.runtime.tensor(np.full(4, 5, "float32")), tvm.runtime.empty((4,), "float32")
    compiled["main"](x, y)
    assert y.numpy()[0] == ((5 + 1) * (10 + 3)) ** 2
