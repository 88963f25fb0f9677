"""The networks of docs/results are exact, and small in ops."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.networks.__main__ import PAGE, figures
from tests.networks.figures import compared, count
from tests.networks.network import Network
from tests.networks.registry import networks
from tests.networks.table import write_table

GRADIENT_BAR = 1e-4
FIVE_STEPS_BAR = 1e-3
DIRECTIONAL_BAR = 1e-4


def require(network: Network) -> None:
    """Skip where the extra `networks` is not installed."""
    package = {"zoo": "torchvision"}.get(network.source, network.source)
    if package in ("torchvision", "transformers") and find_spec(package) is None:
        pytest.skip(f"{network.name} needs {package}: pip install 'tvm-xengine[networks]'")


def test_recorded_figures_meet_the_bars() -> None:
    for stages in figures().values():
        if "float64" in stages:
            row = stages["float64"]
            assert row["gradient"] <= GRADIENT_BAR, row
            assert row["loss"] <= GRADIENT_BAR, row
            assert row["change"] <= FIVE_STEPS_BAR, row
            assert (row["directional"] or 0) <= DIRECTIONAL_BAR, row


def test_the_page_shows_the_recorded_figures(tmp_path: Path) -> None:
    copy = tmp_path / PAGE.name
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_table(copy, list(networks().values()), figures())
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", networks())
def test_network_has_the_gradients_and_steps_of_pytorch(name: str) -> None:
    network = networks()[name]
    require(network)
    errors = compared(network)
    assert errors.gradient <= GRADIENT_BAR
    assert errors.loss <= GRADIENT_BAR
    assert errors.change <= FIVE_STEPS_BAR
    assert (errors.directional or 0) <= DIRECTIONAL_BAR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "unfused", "fused"),
    [("zoo resnet50", 650, 500), ("transformers gpt2-small", None, 900)],
)
def test_steps_are_small_in_ops(name: str, unfused: int | None, fused: int) -> None:
    network = networks()[name]
    require(network)
    sizes = count(network)
    assert unfused is None or sizes.ops_unfused <= unfused
    assert sizes.ops <= fused
