"""Time that threads wait for a core."""

from __future__ import annotations

import os
import threading
import time
import zlib
from pathlib import Path

import pytest

from tvm_xengine.cost_models.measure.queued import queued_us


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not say")
def test_threads_that_share_a_core_wait_for_it() -> None:
    """Both work outside of the interpreter's lock."""
    cores = os.sched_getaffinity(0)
    before_us = queued_us()
    os.sched_setaffinity(0, {min(cores)})
    try:
        stop = time.monotonic() + 0.3
        data = bytes(1 << 22)

        def work() -> None:
            while time.monotonic() < stop:
                zlib.crc32(data)

        other = threading.Thread(target=work)
        other.start()
        work()
        waited_us = queued_us() - before_us
        other.join()
    finally:
        os.sched_setaffinity(0, cores)
    assert waited_us > 0
