"""What a lost rank has left is told from what others on the machine use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from loky.backend.synchronize import Semaphore

from tests.robustness.lost_ranks import left_in_memory

SHARED = Path("/dev/shm")

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="shared memory has no names here")


def test_a_semaphore_that_another_process_uses_is_not_left() -> None:
    earlier = set(SHARED.iterdir())
    semaphore = Semaphore(1)
    (named,) = set(SHARED.glob(f"sem.loky-{os.getpid()}-*")) - earlier
    assert f"left {named}" not in left_in_memory(earlier)
    assert semaphore.acquire()


def test_memory_that_no_process_uses_is_left() -> None:
    earlier = set(SHARED.iterdir())
    forgotten = SHARED / "tvm_xengine_test_forgotten"
    forgotten.write_bytes(bytes(64))
    try:
        assert f"left {forgotten}" in left_in_memory(earlier)
    finally:
        forgotten.unlink()
