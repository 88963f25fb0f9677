from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tvm import relax

from tvm_xengine.cost_models.corpus.random_elementwise import self_gated
from tvm_xengine.cost_models.corpus.random_layers import RandomLayers
from tvm_xengine.cost_models.corpus.random_network import random_network
from tvm_xengine.cost_models.corpus.random_sequences import sequences
from tvm_xengine.cost_models.corpus.random_small_layers import (
    normed_rows,
    shared_products,
    tiny_maps,
)
from tvm_xengine.frontends.zoo.layers import build_network
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.training.build import build_training_step


def _network(body, seed, batch_size):
    rng = np.random.default_rng(seed)
    return build_network("x", seed, lambda layers: body(RandomLayers(layers, rng, batch_size)))


def _calls(model):
    """(operator, shapes of its tensors) of every call."""
    found = []

    def visit(expr):
        if isinstance(expr, relax.Call) and expr.op.name.startswith("relax."):
            tensors = [
                static_shape(arg.ty) for arg in expr.args if isinstance(arg.ty, relax.TensorType)
            ]
            found.append((expr.op.name.removeprefix("relax."), tensors))

    for func in model.mod.functions.values():
        relax.analysis.post_order_visit(func, visit)
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("body", [tiny_maps, normed_rows, shared_products, sequences])
def test_small_layers_can_be_trained(body, seed):
    model = _network(body, seed, batch_size=(1, 2, 7, 32)[seed % 4])
    assert build_training_step(model).mod.functions


def test_maps_are_tiny_and_channels_of_every_number():
    shapes = [
        tensors
        for seed in range(30)
        for op, tensors in _calls(_network(tiny_maps, seed, 8))
        if op == "nn.conv2d"
    ]
    assert all(max(data[2:]) <= 3 for data, _ in shapes)
    pixels = Counter(data[2] * data[3] for data, _ in shapes)
    assert {1, 2, 4, 9} <= pixels.keys()
    assert any(weight[2:] == (1, 1) and data[2:] == (1, 1) for data, weight in shapes)
    channels = [data[1] for data, _ in shapes]
    assert min(channels) < 32 and max(channels) > 800


def test_rows_are_normed_in_two_dimensions_few_and_thousands():
    rows = [
        tensors[0]
        for seed in range(40)
        for op, tensors in _calls(_network(normed_rows, seed, 1 + seed % 16))
        if op == "nn.batch_norm"
    ]
    assert all(len(data) == 2 and data[0] >= 2 for data in rows)
    assert min(data[0] for data in rows) < 16 and max(data[0] for data in rows) > 2000


def test_sequences_have_windows_of_one_time_step_and_of_many():
    found = [
        tensors
        for seed in range(40)
        for op, tensors in _calls(_network(sequences, seed, 1 + seed % 16))
        if op == "nn.conv1d"
    ]
    windows = Counter(weight[2] for _, weight in found)
    assert windows[1] > len(found) / 5 and len(windows) >= 6
    assert any(weight[1] == 1 < data[1] for data, weight in found)
    lengths = [data[2] for data, _ in found]
    assert min(lengths) < 16 and max(lengths) > 500


def test_weights_of_products_are_shared():
    for seed in range(10):
        products = [
            tensors for op, tensors in _calls(_network(shared_products, seed, 4)) if op == "matmul"
        ]
        assert max(Counter(map(str, products)).values()) >= 2


def test_self_gated_functions_keep_the_shape_and_vary():
    def body(r):
        x = r.layers.input("x", (2, 8, 3, 3))
        y = self_gated(r, x)
        assert static_shape(y.ty) == (2, 8, 3, 3)
        return y

    kinds = {frozenset(op for op, _ in _calls(_network(body, seed, 2))) for seed in range(40)}
    assert len(kinds) >= 5


@pytest.mark.slow
def test_every_kind_of_small_layer_is_drawn():
    calls = [call for seed in range(90) for call in _calls(random_network(seed, 2))]
    assert any(op == "nn.batch_norm" and len(tensors[0]) == 2 for op, tensors in calls)
    on_a_pixel = [
        tensors[1] for op, tensors in calls if op == "nn.conv2d" and tensors[0][2:] == (1, 1)
    ]
    assert len(set(on_a_pixel)) >= 5
    assert any(op == "nn.softplus" for op, _ in calls) and any(op == "erf" for op, _ in calls)
