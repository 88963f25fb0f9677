from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import te, tirx

from tests.kernels.kernels import BASELINE, NATIVE, run_kernel

FUNCTIONS = {
    "exp": (te.exp, np.exp),
    "tanh": (te.tanh, np.tanh),
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "erf": (te.erf, np.vectorize(math.erf)),
    "cosh": (te.cosh, np.cosh),
    "sinh": (te.sinh, np.sinh),
}


def apply(function, x, description=NATIVE):
    data = te.placeholder(x.shape, "float32", name="x")
    result = te.compute(x.shape, lambda i: function(data[i]), name="y")
    (y,) = run_kernel(te.create_prim_func([data, result]), description, x)
    return y


@pytest.mark.parametrize("description", [NATIVE, BASELINE])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_polynomials_are_right_to_a_few_units_in_the_last_place(name, description):
    ours, numpys = FUNCTIONS[name]
    small = np.logspace(-6, 0, 500)
    x = np.concatenate([np.linspace(-86, 88, 5001), small, -small]).astype("float32")
    np.testing.assert_allclose(apply(ours, x, description), numpys(x.astype("float64")), rtol=2e-6)


@pytest.mark.parametrize("description", [NATIVE, BASELINE])
def test_what_saturates_reaches_one_and_never_exceeds_it(description):
    x = np.concatenate([np.linspace(-20, 20, 20001), [-np.inf, -1e30, 1e30, np.inf]])
    x = x.astype("float32")
    for name, saturated in (("tanh", 9.1), ("erf", 4.0), ("sigmoid", 17.0)):
        y = apply(FUNCTIONS[name][0], x, description)
        assert np.abs(y).max() == 1, name
        np.testing.assert_array_equal(y[x > saturated], 1, name)
        if name != "sigmoid":
            np.testing.assert_array_equal(y[x < -saturated], -1, name)


def test_the_slope_of_a_hyperbolic_tangent_is_that_of_the_rounded_one():
    """1 - y * y, as gradients compute it, is off by no more than a unit in the last place of y."""
    x = np.linspace(-12, 12, 9601).astype("float32")
    y = apply(te.tanh, x).astype("float64")
    np.testing.assert_allclose(1 - y * y, 1 / np.cosh(x.astype("float64")) ** 2, atol=1.3e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_not_a_number_stays_one(name):
    y = apply(FUNCTIONS[name][0], np.array([np.nan, 0.0, np.nan], "float32"))
    np.testing.assert_array_equal(np.isnan(y), [True, False, True])


@pytest.mark.parametrize("description", [NATIVE, BASELINE])
@pytest.mark.parametrize("name", ["log", "log1p"])
def test_logarithms_are_right_to_two_units_in_the_last_place(name, description):
    ours, numpys = getattr(tirx, name), getattr(np, name)
    least = 0.0 if name == "log" else -1.0
    every = np.arange(0, 0x7F800000, 7919, dtype="int32").view("float32")  # of all magnitudes
    x = np.concatenate([every, np.linspace(0.4, 2.5, 9001), np.linspace(-0.999, 1e-3, 9001)])
    x = np.concatenate([x, [np.inf, 1e-45, 1.1754944e-38, 0.99999994, 1.0000001]])
    x = x.astype("float32")[x > least]
    exact = numpys(x.astype("float64"))
    found = apply(ours, x, description).astype("float64")
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(found[~finite], exact[~finite])
    units = np.spacing(np.abs(exact[finite]).astype("float32"))
    assert np.max(np.abs(found[finite] - exact[finite]) / units) < 2


@pytest.mark.parametrize(("name", "least"), [("log", 0.0), ("log1p", -1.0)])
def test_logarithms_have_an_end(name, least):
    x = np.array(
        [least, np.nextafter(np.float32(least), np.float32(-9)), -np.inf, np.nan], "float32"
    )
    np.testing.assert_array_equal(apply(getattr(tirx, name), x), [-np.inf, np.nan, np.nan, np.nan])


def test_exponentials_beyond_the_range_are_zero_and_infinity():
    x = np.array([-np.inf, -1e9, -100, 100, 1e9, np.inf], "float32")
    np.testing.assert_array_equal(apply(te.exp, x), [0, 0, 0, np.inf, np.inf, np.inf])


def test_other_element_types_are_left_to_the_library():
    data = te.placeholder((9,), "float64", name="x")
    result = te.compute((9,), lambda i: tirx.exp(data[i]), name="y")
    x = np.linspace(-3, 3, 9)
    (y,) = run_kernel(te.create_prim_func([data, result]), NATIVE, x)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-14)


@pytest.mark.parametrize("name", ["cosh", "sinh"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hyperbolic_functions_reach_as_far_as_their_type(name, dtype):
    ours, numpys = FUNCTIONS[name]
    last = np.arcsinh(np.finfo(dtype).max) * (1 - 1e-6)
    x = np.array([-np.inf, -last, -1, -0.0, 0.0, 1e-9, 0.999, 1.001, last, np.inf], dtype)
    data = te.placeholder(x.shape, dtype, name="x")
    result = te.compute(x.shape, lambda i: ours(data[i]), name="y")
    (y,) = run_kernel(te.create_prim_func([data, result]), NATIVE, x)
    tolerance = 2e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(y, numpys(x), rtol=tolerance)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(numpys(x)))
