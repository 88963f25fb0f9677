"""Processes wait for one that takes long, and not for one that hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from torch.distributed import HashStore

from tvm_xengine.cluster.attendance import Attendance
from tvm_xengine.errors import NoScheduleError, RankLostError


def test_one_that_takes_longer_than_the_limit_is_waited_for() -> None:
    store, limit_s = HashStore(), 0.5
    places = [Attendance(store, rank, 3, limit_s) for rank in range(3)]
    met: list[int] = []

    def comes(rank: int, late_s: float) -> None:
        for _ in range(2):
            time.sleep(late_s)
            met.append(rank)
            places[rank].meet()
            assert len(met) >= 3  # nobody has gone on alone

    with ThreadPoolExecutor() as threads:
        list(threads.map(comes, range(3), (0.0, 0.0, 3 * limit_s)))


def test_one_that_does_not_count_is_named() -> None:
    store = HashStore()
    first, _ = (Attendance(store, rank, 3, 0.5) for rank in (0, 2))
    with pytest.raises(RankLostError, match="rank 1 has ended or hangs"):
        first.meet()


def test_one_that_fails_ends_the_wait_of_the_others_and_is_met_again() -> None:
    store = HashStore()
    first, second = (Attendance(store, rank, 2, 20.0) for rank in range(2))

    def plans() -> None:
        first.fail(NoScheduleError("needs 2 KiB more"))
        first.meet()

    with ThreadPoolExecutor() as threads:
        planned = threads.submit(plans)
        with pytest.raises(NoScheduleError, match="rank 0 has failed: needs 2 KiB more"):
            second.meet()
        second.meet()
        planned.result()


def test_a_wait_outside_a_meeting_ends_for_one_that_does_not_count() -> None:
    first, _ = (Attendance(HashStore(), rank, 3, 0.5) for rank in (0, 2))
    released = Event()
    with (
        pytest.raises(RankLostError, match="rank 1 has ended or hangs"),
        first.watching(released.set),
    ):
        assert released.wait(60.0)


_MEET = """
import sys, threading, time
from torch.distributed import HashStore
from tvm_xengine.cluster.attendance import Attendance

first, second = (Attendance(store, rank, 2, {limit_s}) for store in [HashStore()] for rank in (0, 1))
look = first._look
first._look = lambda: (time.sleep(0.1), look())  # its thread looks later than the main one turns
threading.Timer({late_s}, second.meet).start()
print("waits", flush=True)
first.meet()
first.close()
second.close()
"""


@pytest.mark.slow
def test_who_was_stopped_for_a_while_together_with_the_others_goes_on() -> None:
    """As when a machine sleeps: 3 s are more than twice the limit."""
    program = _MEET.format(limit_s=1.0, late_s=5.0)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ranks:
        assert ranks.stdout is not None and ranks.stderr is not None
        ranks.stdout.readline()
        time.sleep(0.5)
        ranks.send_signal(signal.SIGSTOP)
        time.sleep(3.0)
        ranks.send_signal(signal.SIGCONT)
        said = ranks.stderr.read()
    assert ranks.returncode == 0, said
