"""Ranks that differ, or do not find each other, say so before they measure."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from tests.cluster.thread_ranks import in_ranks
from tests.cluster.trains import Settings
from tvm_xengine.cluster.agreement import check_agreement, check_same
from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.errors import InvalidPlatformError, RendezvousError
from tvm_xengine.processes.launched import RENDEZVOUS

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


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        ("nohost.invalid", "29500", r"nohost\.invalid MASTER_PORT=29500 is no place .*\(\[Errno"),
        ("127.0.0.1", "", "is no place where 2 processes can meet"),
        ("127.0.0.1", "{taken}", r"2 processes have not found each other at .*already in use"),
    ],
)
def test_a_place_where_ranks_cannot_meet_is_said_at_once(
    host: str, port: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = port.format(taken=taken.getsockname()[1])
        for name, value in (("RANK", "0"), ("WORLD_SIZE", "2")):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("MASTER_ADDR", host)
        monkeypatch.setenv("MASTER_PORT", port)
        monkeypatch.delenv(RENDEZVOUS, raising=False)
        with pytest.raises(RendezvousError, match=said):
            Ranks.join(PLATFORM)
