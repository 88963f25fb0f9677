"""Progress reports while a step is compiled. Loads no TVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm_xengine.kernels.store.kernel_store import OnProgress


class Reporter:
    """Receives progress and notes; this one ignores them, subclasses show them."""

    def stage(self, title: str) -> OnProgress:
        """A callback ``(done, total, item)`` for a stage such as "measuring kernels"."""
        return _ignore

    def status(self, text: str) -> None:
        """Report the current work; an empty text ends it."""

    def note(self, text: str) -> None:
        """Report a fact about the result that the user must know."""


def _ignore(_done: int, _total: int, _item: str) -> None:
    pass
