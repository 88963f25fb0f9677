"""Settings for threads last as long as somebody shares cores."""

from __future__ import annotations

import os
from threading import Event, Thread

from tvm_xengine.kernels.threads.settings import sharing_cores, thread_settings


def test_the_environment_is_as_before_after_the_last_of_nested_users() -> None:
    before, wanted = dict(os.environ), thread_settings()
    with sharing_cores():
        with sharing_cores():
            assert wanted.items() <= os.environ.items()
        assert wanted.items() <= os.environ.items()
    assert dict(os.environ) == before


def test_threads_share_the_settings_and_none_waits_for_another() -> None:
    before, inside, leave = dict(os.environ), Event(), Event()

    def work() -> None:
        with sharing_cores():
            inside.set()
            leave.wait()

    thread = Thread(target=work)
    with sharing_cores():
        thread.start()
        inside.wait()
    shared = dict(os.environ)
    leave.set()
    thread.join()
    assert shared != before or not thread_settings()
    assert dict(os.environ) == before
