"""Threads are ready while cores are free, and rest longer and longer while they are not."""

from __future__ import annotations

from itertools import pairwise
from threading import Thread

import pytest

from tvm_xengine.kernels.threads import ready as ready_module
from tvm_xengine.kernels.threads.ready import (
    FIRST_REST_S,
    LONGEST_REST_S,
    STALLED_S,
    ReadyThreads,
)


class Machine:
    """A clock, cores that are free or not, and what has been asked of them."""

    def __init__(self) -> None:
        self.now_s, self.wakes_in_s, self.asleep, self.looks = 100.0, STALLED_S / 10, 0, 0

    def gather(self) -> tuple[int, ...]:
        self.looks += 1
        self.now_s += self.wakes_in_s
        return ()

    def __enter__(self) -> None:
        self.asleep += 1

    def __exit__(self, *_: object) -> None:
        self.asleep -= 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    monkeypatch.setattr(ready_module, "monotonic", lambda: found.now_s)
    return found


def sleeps(ready: ReadyThreads, machine: Machine) -> bool:
    with ready.entered():
        inside = machine.asleep
    assert machine.asleep == 0
    return bool(inside)


def test_threads_spin_on_free_cores(machine: Machine) -> None:
    ready = ReadyThreads(machine.gather, machine)
    assert not any(sleeps(ready, machine) for _ in range(10))
    assert machine.looks == 10


def test_threads_rest_where_cores_are_taken_and_look_again_less_and_less_often(
    machine: Machine,
) -> None:
    ready = ReadyThreads(machine.gather, machine)
    machine.wakes_in_s = 2 * STALLED_S
    looks_s, looks = [], 0
    while machine.now_s < 130:
        assert sleeps(ready, machine)
        if machine.looks > looks:
            looks = machine.looks
            looks_s.append(machine.now_s)
        machine.now_s += FIRST_REST_S / 50
    rests_s = [after_s - before_s for before_s, after_s in pairwise(looks_s)]
    assert rests_s[0] == pytest.approx(FIRST_REST_S, rel=0.1)
    assert rests_s == sorted(rests_s)
    assert rests_s[-1] == pytest.approx(LONGEST_REST_S, rel=0.1)
    machine.wakes_in_s, machine.now_s = STALLED_S / 10, machine.now_s + LONGEST_REST_S
    assert not sleeps(ready, machine)


def test_it_may_be_entered_again_and_by_several_threads(machine: Machine) -> None:
    ready = ReadyThreads(machine.gather, machine)
    with ready.entered():
        machine.wakes_in_s = 2 * STALLED_S
        with ready.entered():
            assert machine.asleep == 1
        thread = Thread(target=sleeps, args=(ready, machine))
        thread.start()
        thread.join()
    assert machine.asleep == 0
