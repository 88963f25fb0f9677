"""Where output is no terminal, a long command still says what it does."""

import threading

from tvm_xengine.commands.progress import show_lines


def test_what_takes_long_is_said_again_and_again_until_it_is_over() -> None:
    notes: list[str] = []
    said: list[str] = []
    twice = threading.Semaphore(0)

    def say(line: str) -> None:
        said.append(line)
        twice.release()

    with show_lines(notes.append, say, silence_s=0.01) as reporter:
        reporter.note("a fact")
        advance = reporter.stage("measuring kernels")
        advance(3, 7, "conv")
        assert all(twice.acquire(timeout=60) for _ in range(2))
        advance(7, 7, "conv")
        reporter.status("searching")
        while said[-1] != "searching":
            assert twice.acquire(timeout=60)
        reporter.status("")
    assert notes == ["a fact"]
    assert set(said) == {"measuring kernels: 3 of 7", "searching"}


def test_what_is_fast_says_nothing() -> None:
    said: list[str] = []
    with show_lines(said.append, said.append) as reporter:
        reporter.stage("measuring kernels")(1, 7, "conv")
    assert said == []
