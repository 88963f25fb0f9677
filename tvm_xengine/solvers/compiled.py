"""Compiles the functions of the searches: once per machine, without reference counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tvm_xengine.scheduling.compiled import compiled

_P = ParamSpec("_P")
_R = TypeVar("_R")


# Counting references to the many arrays would cost five times what the work costs.
_EVERYWHERE: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_INSIDE = {**_EVERYWHERE, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_HERE = Path(__file__).parent
"""Modules with constants that compiled functions import."""


def entry(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function that Python calls; other threads run meanwhile."""
    return compiled(function, _HERE, **_EVERYWHERE)


def inner(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function that only compiled functions call; this is quicker to compile."""
    return compiled(function, _HERE, **_INSIDE)


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function into its callers: passing its many arrays would cost as much as the call."""
    return compiled(function, _HERE, **{**_INSIDE, "forceinline": True})
