"""Compiles the functions of the searches: once per machine, without reference counts."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit

_logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")


# Counting references to the many arrays would cost five times what the work costs.
_EVERYWHERE: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
_INSIDE = {**_EVERYWHERE, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def entry(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function that Python calls; other threads run meanwhile."""
    return _compiled(function, _EVERYWHERE)


def inner(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function that only compiled functions call; this is quicker to compile."""
    return _compiled(function, _INSIDE)


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function into its callers: passing its many arrays would cost as much as the call."""
    return _compiled(function, {**_INSIDE, "forceinline": True})


def _compiled(function: Callable[_P, _R], options: dict[str, Any]) -> Callable[_P, _R]:
    if _has_place_for_a_cache():
        try:
            dispatcher = _watching_every_source(njit(**options)(function), function)
            return cast("Callable[_P, _R]", dispatcher)
        except (RuntimeError, OSError) as error:  # numba finds no folder that it may write to
            _logger.debug("%s is compiled in every process: %s", function.__qualname__, error)
    return cast("Callable[_P, _R]", njit(**{**options, "cache": False})(function))


def _has_place_for_a_cache() -> bool:
    """Whether numba knows a folder: without a home it would make one that is called ``~``."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return True
    try:
        return Path.home().is_absolute()
    except RuntimeError:
        return False


def _watching_every_source(dispatcher: Any, function: Callable[..., object]) -> Any:
    """`dispatcher` with a cache that is void once a module that it may use has changed.

    These are the modules of the function's folder, and those here with the constants that they
    import. By itself numba only watches the file of the function, not of those it calls. The stamp
    is part of the version, which numba compares before it unpickles anything: what is cached may
    name classes that have moved since.
    """
    folder = Path(function.__code__.co_filename).parent
    stamp = tuple(
        (path.name, path.stat().st_mtime_ns, path.stat().st_size)
        for path in (*sorted(folder.glob("*.py")), *sorted(Path(__file__).parent.glob("*.py")))
    )
    cache_file = dispatcher._cache._cache_file
    cache_file._version = f"{cache_file._version} {stamp}"
    return dispatcher
