"""Exported C is as exact as PyTorch's float32: a share of the table that `make table-parity` writes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.embedded.parity.compare import TOO_SMALL, compare, differences
from benchmarks.embedded.parity.networks import CASES
from tests.aot.examples import need_tools
from tvm_xengine.aot.targets import TARGETS

LEAST = {"losses": 5e-7, "state": 2e-6}
"""Some roundings of float32, where PyTorch happens to have hardly any."""


def check(network: str, optimizer: str, targets: Sequence[str], folder: Path, steps: int) -> None:
    for target in targets:
        need_tools(target)
    for what, row in compare(network, optimizer, targets, folder, steps).items():
        for target in targets:
            assert row[target] <= max(4 * row["pytorch"], LEAST[what]), (target, what, row)


@pytest.mark.slow
def test_a_perceptron_on_this_machine(tmp_path: Path) -> None:
    check("perceptron", "momentum", ["host"], tmp_path, 5)


@pytest.mark.slow
@pytest.mark.parametrize("network", CASES)
def test_a_network_on_this_machine(network: str, tmp_path: Path) -> None:
    check(network, "adam", ["host"], tmp_path, 5)


@pytest.mark.slow
def test_a_transformer_on_every_target(tmp_path: Path) -> None:
    check(
        "transformer", "momentum", [name for name in TARGETS if name not in TOO_SMALL], tmp_path, 3
    )


def test_a_difference_is_relative_to_the_largest_element() -> None:
    exact = np.array([2.0, 4.0]), {"w": np.array([0.0, -8.0]), "count": np.array(3)}
    found = np.array([2.0, 3.0]), {"w": np.array([1.0, -8.0]), "count": np.array(5)}
    assert differences(found, exact) == {"losses": 0.25, "state": 0.125}
