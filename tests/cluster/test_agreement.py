"""Ranks that differ in what they must have in common say so, all of them, before they measure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster.thread_ranks import in_ranks
from tests.cluster.trains import Settings
from tvm_xengine.cluster.agreement import check_agreement, check_same
from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.errors import InvalidPlatformError

PLATFORM = Settings("mlp", "").platform


def test_alike_they_go_on_and_another_platform_is_named_by_all() -> None:
    other = replace(
        PLATFORM, links=(replace(PLATFORM.links[0], latency_us=70.0), *PLATFORM.links[1:])
    )

    def agrees(ranks: Ranks) -> str:
        check_agreement(ranks, PLATFORM)
        with pytest.raises(InvalidPlatformError) as refused:
            check_agreement(ranks, PLATFORM if ranks.leads else other)
        return str(refused.value)

    first, second = in_ranks(agrees)
    assert first == second
    assert "rank 1 has another platform file than rank 0: it says" in first
    assert "latency_us=70.0" in first


def test_another_version_is_named() -> None:
    said = [{"torch": "2.13.0"}, {"torch": "2.13.0"}, {"torch": "2.12.1"}]
    check_same(said[:2])
    with pytest.raises(
        InvalidPlatformError, match=r"rank 2 has torch 2\.12\.1, and rank 0 has 2\.13\.0"
    ):
        check_same(said)
