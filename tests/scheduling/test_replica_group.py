"""A file of many equal machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.scheduling.replicas.group import read_replica_group

FILE = """
[[device]]
name = "core"
target = "llvm"
budget = "1GiB"

[replicas]
count = 4
latency_us = 10
bandwidth_gb_s = 0.001
"""


def test_a_ring_sends_two_shares_of_a_tensor_less_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "group.toml"
    path.write_text(FILE)
    group = read_replica_group(path)
    assert [device.name for device in group.machine.devices] == ["core"]
    assert group.all_reduce_us(400) == pytest.approx(6 * (10 + 100))
    assert group.all_gather_us(400) == pytest.approx(3 * (10 + 100))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[replicas]", "[others]", "expected a table"),
        ("count = 4", "count = 0", "count must be at least 1"),
        ("count = 4", "number = 4", "number"),
        ("latency_us = 10\n", "", "lacks 'latency_us'"),
        ("bandwidth_gb_s = 0.001", "bandwidth_gb_s = 0", "bandwidth_gb_s must be finite and > 0"),
    ],
)
def test_what_is_no_group_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "group.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(InvalidPlatformError, match=said):
        read_replica_group(path)
