"""Names in messages: the likely ones first, and not too many."""

from __future__ import annotations

import pytest

from tvm_xengine.checks.names import closest_first, some

NAMES = ["gone", "bn1.weight", "conv1.weight", "conv1.bias", "fc.weight", "fc.bias", "relu_3"]


@pytest.mark.parametrize(
    ("pattern", "first"),
    [
        ("conv*", "conv1.bias"),
        ("cnov1.weight", "conv1.weight"),
        ("fc.wieght", "fc.weight"),
        ("FC.bias", "fc.bias"),
        ("relu3", "relu_3"),
        ("*bn2*", "bn1.weight"),
    ],
)
def test_what_is_closest_to_a_pattern_comes_first(pattern: str, first: str) -> None:
    assert closest_first(NAMES, pattern)[0] == first
    assert sorted(closest_first(NAMES, pattern)) == sorted(NAMES)


def test_a_pattern_without_letters_leaves_the_order() -> None:
    assert closest_first(NAMES, "*") == NAMES


def test_names_that_are_left_out_are_counted() -> None:
    assert some(NAMES, 2) == "gone, bn1.weight and 5 more"
    assert some(NAMES) == ", ".join(NAMES)
