"""Layer norm and maxima of windows: oneDNN's kernels compute what generated kernels compute."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from tvm import te, tirx

from tests.kernels.onednn.onednn_twins import NATIVE, assert_twins_agree, needs_onednn, run
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.library.parts import name_attributes
from tvm_xengine.kernels.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.kernels.te.norms.row_norm import layer_norm_backward, layer_norm_forward
from tvm_xengine.kernels.te.pooling import max_pool_backward, max_pool_forward

pytestmark = needs_onednn

SLOW = settings(max_examples=10, phases=(Phase.explicit, Phase.generate))


def named(kernel, shapes, dtypes=None, **options) -> tirx.PrimFunc:
    """A kernel of the training step, which knows its name."""
    types = dtypes or ["float32"] * len(shapes)
    inputs = [
        te.placeholder(s, t, name=f"x{k}")
        for k, (s, t) in enumerate(zip(shapes, types, strict=True))
    ]
    made = kernel(*inputs, **options)
    outputs = made if isinstance(made, list) else [made]
    func = te.create_prim_func([*inputs, *outputs]).without_attr("global_symbol")
    return func.with_attrs(name_attributes(kernel.__name__, **options))


rows = st.lists(st.integers(1, 6), min_size=1, max_size=2)
columns = st.lists(st.integers(1, 20), min_size=1, max_size=2)
epsilons = st.sampled_from([1e-3, 1e-5, 1e-12])


@given(outer=rows, inner=columns, epsilon=epsilons, seed=st.integers(0, 99))
@SLOW
def test_layer_norm(outer: list[int], inner: list[int], epsilon: float, seed: int) -> None:
    assume(prod(inner) > 1)  # of one element nothing is left but rounding
    shapes = [(*outer, *inner), tuple(inner), tuple(inner)]
    assert assert_twins_agree(named(layer_norm_forward, shapes, epsilon=epsilon), seed=seed)


@given(outer=rows, inner=columns, seed=st.integers(0, 99))
@SLOW
def test_gradients_of_a_layer_norm(outer: list[int], inner: list[int], seed: int) -> None:
    assume(prod(inner) >= 4)  # the gradient of shorter rows is what rounding leaves
    shape, row, column = (*outer, *inner), tuple(outer), tuple(inner)
    rng = np.random.default_rng(seed)
    dy, x = (rng.standard_normal(shape, dtype="f4") for _ in range(2))
    gamma = rng.uniform(0.5, 2, column).astype("f4")
    axes = tuple(range(len(outer), len(shape)))
    mean = x.mean(axes)
    inv_std = 1 / np.sqrt(x.var(axes) + np.float32(1e-5))
    func = named(layer_norm_backward, [shape, shape, column, row, row], wanted=(True, True, True))
    assert assert_twins_agree(func, inputs=[dy, x, gamma, mean, inv_std.astype("f4")])


def test_gradients_that_nobody_wants_are_left_to_generated_code() -> None:
    shapes = [(4, 8), (4, 8), (8,), (4,), (4,)]
    func = named(layer_norm_backward, shapes, wanted=(True, False, False))
    assert prepare_onednn_kernel(func, NATIVE, "norm") is None


@st.composite
def windows(draw: st.DrawFn, *, overlapping: bool = True) -> dict[str, tuple[int, ...]]:
    """Windows of one to three axes, with padding and dilation."""
    rank = draw(st.integers(1, 3))
    size = draw(st.tuples(*[st.integers(2, 3)] * rank))
    strides = tuple(draw(st.integers(1, extent - overlapping)) for extent in size)
    dilation = draw(st.sampled_from([(1,) * rank, (2,) * rank]))
    padding = tuple(draw(st.integers(0, size[a % rank] // 2)) for a in range(2 * rank))
    reach = [dilation[a] * (size[a] - 1) + 1 for a in range(rank)]
    space = tuple(draw(st.integers(reach[a], reach[a] + 6)) for a in range(rank))
    out = tuple(
        (space[a] + padding[a] + padding[a + rank] - reach[a]) // strides[a] + 1
        for a in range(rank)
    )
    head = (draw(st.integers(1, 2)), draw(st.integers(1, 5)))
    return {
        "data": (*head, *space),
        "output": (*head, *out),
        "pool_size": size,
        "strides": strides,
        "dilation": dilation,
        "padding": padding,
    }


def options(window: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {n: window[n] for n in ("pool_size", "strides", "dilation", "padding")}


def test_maxima_are_left_to_generated_code() -> None:
    """oneDNN's leave NaN out, which is greater than all numbers."""
    shape = (1, 16, 9, 9)
    window = {"pool_size": (3, 3), "strides": (2, 2), "dilation": (1, 1), "padding": (0, 0, 0, 0)}
    func = named(max_pool_forward, [shape], **window, output_shape=(1, 16, 4, 4))
    assert prepare_onednn_kernel(func, NATIVE, "library") is None
    data = np.random.default_rng(0).standard_normal(shape, dtype="f4")
    data[0, 3, 4, 4] = data[0, 5, 0, 0] = np.nan
    maxima, _ = run(prepare_kernel(func, NATIVE), [data])
    assert [int(np.isnan(maxima[0, c]).sum()) for c in (3, 5, 7)] == [4, 1, 0]


@pytest.mark.slow
@given(window=windows(), seed=st.integers(0, 99))
@SLOW
def test_gradient_of_maxima(window: dict[str, tuple[int, ...]], seed: int) -> None:
    """Positions of maxima, none of which lies in the padding."""
    rng = np.random.default_rng(seed)
    forward = named(
        max_pool_forward, [window["data"]], **options(window), output_shape=window["output"]
    )

    data = rng.standard_normal(window["data"], dtype="f4")
    _, positions = run(prepare_kernel(forward, NATIVE), [data])
    gradient = rng.standard_normal(window["output"], dtype="f4")
    func = named(
        max_pool_backward,
        [window["output"]] * 2,
        ["float32", "int32"],
        **options(window),
        data_shape=window["data"],
    )
    library = assert_twins_agree(func, inputs=[gradient, positions])
    assume(library is not None)
