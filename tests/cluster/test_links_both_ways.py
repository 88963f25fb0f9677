"""A link whose two directions share what they have is measured while both are busy."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from tests.cluster.thread_ranks import in_ranks
from tvm_xengine.cluster.links import with_links_of_ranks
from tvm_xengine.cluster.ranks import Message, Ranks
from tvm_xengine.scheduling.platform import Device, Link, Platform

_BYTES_PER_S = 4e8
"""Four megabytes take ten milliseconds, long beside what a thread waits for its turn."""


def _measured(*pairs: tuple[str, str]) -> Link:
    devices = tuple(Device(f"d{rank}", "llvm", rank=rank) for rank in range(2))
    platform = Platform(devices, tuple(Link(*pair) for pair in pairs), home="d0", handover_us=1.0)
    everywhere = in_ranks(lambda ranks: with_links_of_ranks(platform, ranks, lambda own: own))
    assert everywhere[0] == everywhere[1]
    return everywhere[0].links[0]


def test_both_directions_get_what_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, send = threading.Lock(), Ranks.send

    def in_turn(ranks: Ranks, tensor: torch.Tensor, peer: int, tag: int) -> Message:
        with wire:
            time.sleep(tensor.numel() / _BYTES_PER_S)
            return send(ranks, tensor, peer, tag)

    monkeypatch.setattr(Ranks, "send", in_turn)
    alone = _measured(("d0", "d1"))
    shared = _measured(("d0", "d1"), ("d1", "d0"))
    assert alone.bandwidth_gb_s is not None and shared.bandwidth_gb_s is not None
    assert shared.bandwidth_gb_s < 0.7 * alone.bandwidth_gb_s
