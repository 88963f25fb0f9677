"""Arguments that cannot be meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tvm_xengine.errors import XEngineError


class UsageError(XEngineError):
    """The arguments of a command cannot be meant."""


@contextmanager
def refusing_values() -> Iterator[None]:
    """What the library refuses as a wrong value is refused as a wrong argument."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, XEngineError):
            raise
        raise UsageError(str(error)) from error
