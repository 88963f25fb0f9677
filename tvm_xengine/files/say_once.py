"""Warnings that many callers come to, said once by a process."""

from __future__ import annotations

import logging
from functools import cache


@cache
def say_once(logger: logging.Logger, message: str) -> None:
    """Log a warning, unless this process has logged it already."""
    logger.warning("%s", message)
