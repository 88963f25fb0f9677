"""Each process finds out on which host of a platform file it runs, or all say why not."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.thread_ranks import in_ranks
from tests.cluster.trains import Settings
from tvm_xengine.cluster.hosts import HOST, Claim, leads_here, placed, with_ranks_of_hosts
from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.scheduling.platform import Platform

PLATFORM = Settings("mlp", "", ranks=(0, 0, 0), hosts=("alpha", "beta", "alpha")).platform
MACHINE = socket.gethostname()
SHORT = MACHINE.partition(".")[0]


def test_hosts_are_numbered_as_they_appear_until_ranks_are_known() -> None:
    assert [device.rank for device in PLATFORM.devices] == [0, 1, 0]
    claims = [Claim("b", ["beta"]), Claim("a", ["alpha"])]
    found = placed(PLATFORM, claims)
    assert [device.rank for device in found.devices] == [1, 0, 1]
    assert found.links == PLATFORM.links
    assert [device.rank for device in found.without_ranks({0}).devices] == [0, 0]


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (
            [["alpha"], []],
            "no process runs on host beta of device d1; rank 1 runs on m1, which no device names as its"
            " host: expected one process on each of the hosts alpha, beta",
        ),
        ([["alpha"], ["beta"], []], "rank 2 runs on m2, which no device names as its host"),
        ([["alpha"], ["alpha"]], "no process runs on host beta of device d1; host alpha runs the ranks 0, 1"),
        ([["alpha", "beta"]], "rank 0 on m0 is each of alpha, beta"),
    ],
)  # fmt: skip
def test_who_is_missing_or_one_too_many_is_named(claims: list[list[str]], said: str) -> None:
    with pytest.raises(InvalidPlatformError, match=re.escape(said)):
        placed(PLATFORM, [Claim(f"m{rank}", hosts) for rank, hosts in enumerate(claims)])


def test_all_ranks_say_that_a_host_has_none() -> None:
    """Both are this machine, of which the file knows nothing."""

    def refused(ranks: Ranks) -> str:
        with pytest.raises(InvalidPlatformError) as error:
            with_ranks_of_hosts(PLATFORM, ranks)
        return str(error.value)

    first, second = in_ranks(refused)
    assert first == second
    assert f"rank 0 runs on {MACHINE}, which no device names" in first


@pytest.mark.parametrize(
    ("host", "environment", "is_claimed"),
    [
        (SHORT.upper(), {}, True),
        (f"{SHORT}/0", {}, True),
        (SHORT, {"LOCAL_RANK": "1"}, False),
        (f"{SHORT}/1", {"LOCAL_RANK": "1"}, True),
        (SHORT, {HOST: "other"}, False),
        ("other/1", {HOST: "other/1"}, True),
        ("nohost.invalid", {}, False),
        ("a..b", {}, False),
        ("localhost", {}, False),
    ],
)
def test_a_process_is_known_by_its_name(
    host: str, environment: dict[str, str], is_claimed: bool
) -> None:
    if host == "localhost" == SHORT:
        pytest.skip("this machine is called so")
    claim = Claim.of_this_process(["gamma.invalid", host], environment)
    assert claim.hosts == ([host] if is_claimed else [])


def test_an_address_leads_here_if_the_system_sends_from_it() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no address")
        own = probe.getsockname()[0]
    assert leads_here(own)
    assert not leads_here("198.51.100.1")
    assert not leads_here("127.0.0.1")  # every machine's


def test_devices_without_a_host_among_others_are_refused() -> None:
    first, second, third = PLATFORM.devices
    with pytest.raises(ValueError, match="device d1 has no host, and others have one"):
        Platform((first, replace(second, host="")))
    with pytest.raises(ValueError, match="one process runs on each host: d0 is on rank 0"):
        Platform((first, replace(third, rank=1)))


def test_files_keep_hosts(tmp_path: Path) -> None:
    PLATFORM.save(file := tmp_path / "hosts.toml")
    assert Platform.load(file) == PLATFORM
