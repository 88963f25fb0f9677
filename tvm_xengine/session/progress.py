"""Progress of the stages, told to a function of the user."""

from __future__ import annotations

from collections.abc import Callable

from tvm_xengine.compiler.reporter import Reporter

Progress = Callable[[str, float | None], None]
"""Called with the name of the work and, where it is known, the share that is done."""


def reporter_of(progress: Progress | Reporter | None) -> Reporter:
    """What stages report to; None is told nothing."""
    if progress is None:
        return Reporter()
    return progress if isinstance(progress, Reporter) else _Callback(progress)


class _Callback(Reporter):
    """Hands progress to a function."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def stage(self, title: str) -> Callable[[int, int, str], None]:
        def advance(done: int, total: int, item: str) -> None:
            self._progress(f"{title}: {item}", done / total if total else None)

        return advance

    def status(self, text: str) -> None:
        if text:
            self._progress(text, None)

    def note(self, text: str) -> None:
        self._progress(text, None)
