"""Ranks time their calls by one clock."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.thread_ranks import in_ranks
from tvm_xengine.cluster.rank_marks import RankMarks, clock_offset_us
from tvm_xengine.cluster.ranks import Ranks

_AHEAD_NS = 5_000_000_000
"""How far the clock of each rank is ahead of that of the one before it."""


@pytest.mark.parametrize("are_on_one_host", [True, False])
def test_clocks_of_other_hosts_are_put_right(are_on_one_host: bool, tmp_path: Path) -> None:
    def work(ranks: Ranks) -> tuple[float, float]:
        boot = tmp_path / str(ranks.rank)
        boot.write_text("same" if are_on_one_host else f"boot {ranks.rank}")
        began_ns = time.monotonic_ns()
        offset_us = clock_offset_us(
            ranks, lambda: time.monotonic_ns() + _AHEAD_NS * ranks.rank, boot
        )
        return offset_us, (time.monotonic_ns() - began_ns) / 1e3

    for rank, (offset_us, most_error_us) in enumerate(in_ranks(work, 3)):
        expected_us = 0.0 if are_on_one_host else -rank * _AHEAD_NS / 1e3
        assert offset_us == pytest.approx(expected_us, abs=0.0 if not rank else most_error_us)
        assert offset_us == 0 or not are_on_one_host


def test_a_message_does_not_end_before_it_begins() -> None:
    """Its begin is noted by one rank, its end by another one, whose clock may be behind."""

    def work(ranks: Ranks) -> tuple[dict[int, tuple[float, float]], float]:
        marks = RankMarks([7], ranks, -1e6 * ranks.rank)
        marks.last_us = 10.0 + ranks.rank
        if ranks.leads:
            marks.note(0)
        ranks.meet()
        if not ranks.leads:
            marks.note(1)
        return dict(marks.intervals_us), marks.step_us

    assert in_ranks(work) == [({7: (0.0, 0.0)}, 11.0)] * 2
