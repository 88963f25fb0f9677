"""Modules are loaded without looking for garbage among them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Load modules inside: a third of a second in two sooner, and what is loaded is not looked at again.

    Python's garbage collector walks all objects each time that their number has grown by a quarter. For
    processes that belong to this package.
    """
    is_enabled, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if is_enabled:
            gc.enable()
