from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from tvm_xengine.cost_models.corpus.designs.catalogue import DESIGNS, build_design
from tvm_xengine.cost_models.corpus.random_network import random_network
from tvm_xengine.cost_models.corpus.variants import variants
from tvm_xengine.cost_models.dataset.dataset import RANDOM
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends import zoo
from tvm_xengine.training.build import build_training_step


@pytest.mark.parametrize("name", DESIGNS)
def test_designs_can_be_built_and_equal_seeds_give_equal_ones(name):
    one, again = (build_design(name, 2, 5, seed=3) for _ in range(2))
    assert one.parameters.keys() == again.parameters.keys()
    for key, value in one.parameters.items():
        np.testing.assert_array_equal(value, again.parameters[key])


@pytest.mark.parametrize(
    "name", ["efficientnet", "segnet", "bert", "shufflenet", "llama", "swin", "lstm", "wavenet"]
)
def test_designs_can_be_trained(name):
    step = build_training_step(build_design(name, 2, 5, seed=1))
    assert "train_step" in {var.name_hint for var in step.mod.get_global_vars()}


def test_seeds_choose_the_width_of_a_design():
    sizes = {
        sum(value.size for value in build_design("mobilenetv1", 1, 5, seed).parameters.values())
        for seed in range(6)
    }
    assert len(sizes) > 1


def test_an_unknown_design_is_named():
    with pytest.raises(UnsupportedModelError, match="unknown design 'lenet'"):
        build_design("lenet", 1, 2, 0)


def test_an_image_is_as_small_as_a_design_can_halve():
    """Seed 2 draws an extent that halves twice only."""
    build_design("segnet", 1, 2, seed=2)


def test_a_name_that_no_network_has_is_refused_at_once():
    with pytest.raises(UnsupportedModelError, match=r"unknown networks \['lenett'\]"):
        variants(("lenet", "lenett"))


def test_networks_come_in_turn_with_as_many_random_ones():
    names = [
        variant.network for variant in islice(variants(), 2 * (len(zoo.NETWORKS) + len(DESIGNS)))
    ]
    assert names[1::2] == [RANDOM] * (len(names) // 2)
    assert set(names[::2]) == {*zoo.NETWORKS, *DESIGNS}


def test_equal_seeds_give_equal_variants_and_families_have_no_numbers():
    assert list(islice(variants(seed=5), 30)) == list(islice(variants(seed=5), 30))
    (variant,) = islice(variants(("mobilenetv1",)), 1)
    assert variant.family == "mobilenetv"


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_can_be_trained(seed):
    model = random_network(seed, batch_size=1 + seed % 3)
    assert build_training_step(model).mod.functions
