"""Sines, tangents and their inverses, over all magnitudes of float32."""

import numpy as np
import pytest
from tvm import te, tirx

from tests.kernels.kernels import BASELINE, NATIVE, run_kernel
from tests.shares import first
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target

EVERY = np.arange(0, 0x7F800000, 7919, dtype="int32").view("float32")
NEAR_QUARTERS = (np.arange(1, 40_000) * (np.pi / 2)).astype("float32")
ANGLES = np.concatenate([EVERY, NEAR_QUARTERS, np.linspace(0, 7, 20_001, dtype="float32")])
ANGLES = np.concatenate([ANGLES, -ANGLES])
SPECIAL = np.array(
    [0.0, 1e-45, 4e-45, 1.2e-38, 0.4, 1.0, 3.0, 1e30, 2e38, 3.4e38, np.inf], "float32"
)
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])


def applied(function, *arrays, description=NATIVE):
    inputs = [te.placeholder(x.shape, "float32", name=f"x{k}") for k, x in enumerate(arrays)]
    result = te.compute(arrays[0].shape, lambda i: function(*(x[i] for x in inputs)), name="y")
    (y,) = run_kernel(te.create_prim_func([*inputs, result]), description, *arrays)
    return y


def units_off(found, exact):
    """Greatest distance in units in the last place."""
    units = np.spacing(np.abs(exact).astype("float32")).astype("float64")
    return np.max(np.abs(found.astype("float64") - exact) / units)


@pytest.mark.parametrize("description", [NATIVE, BASELINE])
@pytest.mark.parametrize(("name", "most"), [("sin", 1.6), ("cos", 1.6), ("tan", 3.6), ("atan", 3)])
def test_functions_of_one_number(name, most, description):
    found = applied(getattr(tirx, name), ANGLES, description=description)
    assert units_off(found, getattr(np, name)(ANGLES.astype("float64"))) < most


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "atan"])
def test_zeros_keep_their_sign_and_infinities_have_no_sine(name):
    x = np.array([0.0, -0.0, np.nan, np.inf, -np.inf], "float32")
    found = applied(getattr(tirx, name), x)
    with np.errstate(invalid="ignore"):
        expected = getattr(np, name)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found[:2]), np.signbit(expected[:2]))


@pytest.mark.parametrize("description", first(1, [NATIVE, BASELINE]))
def test_the_angle_of_a_point(description):
    rng = np.random.default_rng(0)
    size = 200_000
    y, x = (rng.normal(size=size) * 10 ** rng.uniform(-12, 12, size) for _ in range(2))
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL])
    y, x = (np.concatenate([a, pairs[:, k]]).astype("float32") for k, a in enumerate((y, x)))
    found = applied(tirx.atan2, y, x, description=description)
    exact = np.arctan2(y.astype("float64"), x.astype("float64"))
    assert units_off(found, exact) < 3
    np.testing.assert_array_equal(np.signbit(found), np.signbit(exact))


def test_the_angle_of_no_point():
    numbers = np.array([np.nan, 1.0, np.nan, np.inf, np.nan, 0.0], "float32")
    assert np.isnan(applied(tirx.atan2, numbers, np.roll(numbers, 1))).all()


def test_boards_call_their_library():
    x = te.placeholder((9,), "float32", name="x")
    func = te.create_prim_func([x, te.compute((9,), lambda i: tirx.sin(x[i]), name="y")])
    lowered = prepare_kernel(func, resolve_target("c"), "sine").func
    assert "T.sin(" in lowered.script()
