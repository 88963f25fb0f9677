"""Parameters that are rounded at random: right on average, and the same on every machine."""

from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te

from tests.aot.examples import need_tools, tiny_mlp
from tests.aot.kernels.test_c_kernel import C, differences
from tests.training.test_dropout import _hash
from tvm_xengine.aot.check.reference import host_step
from tvm_xengine.compiler.lean.short_storage import ShortStorage, with_short_storage
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.te.randomness import rounded_at_random
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep

COUNT = 4096
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def rounding(dtype: str) -> tvm.tirx.PrimFunc:
    data = te.placeholder((COUNT,), "float32", name="data")
    seed, step = (te.placeholder((), "int32", name=name) for name in ("seed", "step"))
    out = rounded_at_random(data, seed, step, dtype=dtype, op=-1)
    return te.create_prim_func([data, seed, step, out], index_dtype_override="int64")


@cache
def compiled(dtype: str) -> tvm.runtime.Executable:
    return tvm.compile(rounding(dtype).with_attr("global_symbol", "main"), "llvm")


def rounded(values: np.ndarray, dtype: str, seed: int, step: int) -> np.ndarray:
    out = tvm.runtime.tensor(np.zeros(COUNT, TYPES[dtype]))
    given = (values.astype("float32"), np.array(seed, "int32"), np.array(step, "int32"))
    compiled(dtype)(*(tvm.runtime.tensor(value) for value in given), out)
    return out.numpy()


def shares(seed: int, step: int) -> np.ndarray:
    """The random numbers in [0, 1) of all elements."""
    with np.errstate(over="ignore"):
        salt = np.uint32((-0x85EBCA6B + 0x27D4EB2F) % 2**32)
        key = _hash(_hash(_hash(np.array(seed, "uint32")) ^ np.uint32(step)) ^ salt)
        words = _hash(_hash(np.arange(COUNT, dtype="uint32")) ^ key)
    return (words >> 8) / 2.0**24


@pytest.mark.parametrize("dtype", TYPES)
def test_the_upper_neighbour_is_taken_as_often_as_it_is_near(dtype: str) -> None:
    """NumPy's numbers of these types say which neighbours there are."""
    short, random = TYPES[dtype], np.random.default_rng(0)
    values = random.normal(size=COUNT) * 10.0 ** random.integers(-8, 4, COUNT)
    values[:6] = (np.inf, -np.inf, np.nan, 0.0, 1.0, -2.5)
    values = values.astype("float32")
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = values.astype(short)
        above = nearest.astype("float64") > values
        lower = np.where(above, np.nextafter(nearest, short(-np.inf)), nearest).astype(short)
        upper = np.nextafter(lower, short(np.inf)).astype("float64")
        share = (values - lower.astype("float64")) / (upper - lower.astype("float64"))
    for seed, step in ((0, 0), (3, 7)):
        expected = np.where(shares(seed, step) < share, upper, lower.astype("float64"))
        found = rounded(values, dtype, seed, step).astype("float64")
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_mean_is_the_number(dtype: str) -> None:
    step = float(ml_dtypes.finfo(TYPES[dtype]).eps)
    for number, share in ((1.0, 0.125), (-3.0, 0.7), (2.0**-20, 0.3)):
        value = np.float64(
            np.float32(number + share * step * 2.0 ** np.floor(np.log2(abs(number))))
        )
        found = [rounded(np.full(COUNT, value), dtype, 1, k).astype("float64") for k in range(16)]
        deviation = np.std(found) / np.sqrt(np.size(found))
        assert abs(np.mean(found) - value) < 5 * deviation


def test_c_rounds_the_same_bits(tmp_path: Path) -> None:
    need_tools("host")
    kernels = [prepare_kernel(rounding(dtype), C, dtype) for dtype in TYPES]
    assert not differences(kernels, tmp_path)


def stored_short(rounding: str, seed: int = 0) -> TrainingStep:
    """Weights of one and more, whose neighbours are far away."""
    recipe = Recipe(optimizer=SGD(), draws_in_updates=rounding == "stochastic")
    training = build_step_by_recipe(tiny_mlp(8), recipe, seed=seed)
    storage = ShortStorage(parameters=True, least_bytes=256, rounding=rounding)
    stored = with_short_storage(training, storage)
    weights = stored.initial_state["fc1_weight"]
    stored.initial_state["fc1_weight"] = np.copysign(1.5, weights).astype(weights.dtype)
    return stored


def trained(executable: StepExecutable, training: TrainingStep, steps: int) -> np.ndarray:
    """What the weights have moved by."""
    executable.poison()
    executable.write(training.initial_state)
    random = np.random.default_rng(0)
    batch = {
        "x": random.normal(size=(8, 16)).astype("float32"),
        "labels": random.integers(0, 4, 8),
        "lr": np.asarray(5e-4, "float32"),
    }
    for _ in range(steps):
        executable.step(batch)
    after = executable.read_state()["fc1_weight"].astype("float64")
    return after - training.initial_state["fc1_weight"].astype("float64")


def test_weights_move_where_the_nearest_number_is_always_the_old_one() -> None:
    nearest, stochastic = stored_short("nearest"), stored_short("stochastic")
    assert not trained(host_step(nearest), nearest, 20).any()
    executable = host_step(stochastic)
    moved = trained(executable, stochastic, 20)
    assert np.count_nonzero(moved) > 20
    np.testing.assert_array_equal(trained(executable, stochastic, 20), moved)
    other = stored_short("stochastic", seed=1)
    assert (trained(executable, other, 20) != moved).any()


@pytest.mark.slow
def test_weights_move_as_far_as_those_of_float32_on_average() -> None:
    stochastic = stored_short("stochastic")
    exact = build_step_by_recipe(tiny_mlp(8), Recipe(optimizer=SGD()))
    exact.initial_state["fc1_weight"] = stochastic.initial_state["fc1_weight"].astype("float32")
    far = trained(host_step(exact), exact, 200)
    moved = trained(host_step(stochastic), stochastic, 200)
    assert np.sum(moved * far) / np.sum(far * far) == pytest.approx(1.0, abs=0.1)


def test_rounding_is_for_parameters_that_are_stored_short() -> None:
    with pytest.raises(ValueError, match="is for parameters"):
        ShortStorage(rounding="stochastic")
    with pytest.raises(ValueError, match="nearest, stochastic"):
        ShortStorage(parameters=True, rounding="up")
